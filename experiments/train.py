"""Trains operators on your own data. The same as `opjax-train`."""

from opjax.learn.cli import train

if __name__ == "__main__":
    train.main()
