"""Learns the inverse Laplacian by two-level Schwarz attention.

python -m experiments.poisson_schwarz --preset=quick
python -m experiments.poisson_schwarz --preset=paper --sweep
"""

from experiments.poisson_schwarz import PROGRAM

if __name__ == "__main__":
    PROGRAM.launch()
