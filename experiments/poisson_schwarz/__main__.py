"""Starts the program, see `experiments.poisson_schwarz`."""

from experiments.poisson_schwarz import PROGRAM

if __name__ == "__main__":
    PROGRAM.launch()
