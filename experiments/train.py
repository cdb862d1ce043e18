"""Trains operators on your own data; the same as `opjax-train`."""

from opjax.learn import train

if __name__ == "__main__":
    train.main()
