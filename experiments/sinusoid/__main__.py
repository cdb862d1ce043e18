"""Starts the program, see `experiments.sinusoid`."""

from experiments.sinusoid import PROGRAM

if __name__ == "__main__":
    PROGRAM.launch()
