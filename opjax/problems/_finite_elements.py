"""Import of scikit-fem on first use."""

import importlib
import logging
from types import ModuleType


def skfem() -> ModuleType:
    """Imports scikit-fem.

    Raises:
      ImportError: if it is missing. The message names the extra.
    """
    try:
        import skfem

        importlib.import_module("skfem.helpers")  # an attribute from now on
    except ImportError as error:
        raise ImportError(
            'Finite elements need scikit-fem: pip install "opjax[fem]".'
        ) from error
    logger = logging.getLogger("skfem")
    if logger.level == logging.NOTSET:  # it reports every matrix of every sample
        logger.setLevel(logging.WARNING)
    return skfem
