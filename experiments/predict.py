"""Predicts on your own meshes with trained operators. The same as `opjax-predict`."""

from opjax.learn.cli import predict

if __name__ == "__main__":
    predict.main()
