"""Learns to regress sine waves from a few observations.

python -m experiments.sinusoid --preset=quick
python -m experiments.sinusoid --preset=paper --seeds=0,1,2
"""

from experiments.sinusoid import PROGRAM

if __name__ == "__main__":
    PROGRAM.launch()
