"""Predicts on your own meshes with trained operators; the same as `opjax-predict`."""

from opjax.learn import predict

if __name__ == "__main__":
    predict.main()
