r"""Design with a trained operator: optimises a case within the trusted region.

    minimise  f(case(x)) + weight * band(case(x))    over x between bounds
    such that  unlikeness(case(x)) <= limit,    q_i(case(x)) = value_i.

An optimiser exploits the errors of an operator: it moves to where the prediction is too
good. The guard prevents this. With the half-width of its interval as `band`, the upper
end of the interval is minimised. `unlikeness` defines a trust region around the
calibration cases.

The variables are scalars of a case and the amplitudes of a few smooth displacements of
its mesh (`gaussian_modes`). JAX computes the derivatives. The optimiser is sequential
quadratic programming, SLSQP of SciPy, because it takes bounds and constraints.
"""

from opjax.design.minimising import Found, Guard, Reach, Step, minimise
from opjax.design.shapes import gaussian_modes, moved, signed_volumes

__all__ = [
    "Found",
    "Guard",
    "Reach",
    "Step",
    "gaussian_modes",
    "minimise",
    "moved",
    "signed_volumes",
]
