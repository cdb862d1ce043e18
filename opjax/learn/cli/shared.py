"""Options that several programs share."""

import os
from typing import Any

from opjax.files.formats import Paths, listed
from opjax.learn.config.fields import option, required


def workdir() -> Any:
    """Folder of a run."""
    return required(
        "Folder of a finished run or of a published operator, or the name of one that "
        "ships with opjax, such as darcy"
    )


def own_model() -> Any:
    """Name of a user-defined model."""
    return option(
        None,
        "Import path of your own model, package.module:function, if the run trained "
        "one",
    )


def point_dim() -> Any:
    """Dimension of space."""
    return option(
        None,
        "Dimension of space, as in opjax-train. By default, as in training",
        minimum=1,
    )


def chunk_size() -> Any:
    """See `Limits`."""
    return option(2**14, "Number of points evaluated at a time", minimum=1)


def memory_gib() -> Any:
    """See `Limits`."""
    return option(8.0, "Maximum memory of one evaluation, in GiB", minimum=0)


def scratch() -> Any:
    """See `Limits`."""
    return option(None, "Folder for a temporary file with the features of all points")


def divided(paths: Paths) -> list[str]:
    """Returns the comma-separated paths of an input, see `files.formats.listed`."""
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    return listed([os.fspath(path) for path in several])
