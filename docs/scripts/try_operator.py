"""Exports the operator of the page "Try it", with its band and its test of likeness.

    python docs/scripts/try_operator.py RUN FOLDER

RUN is the run folder of the training and FOLDER its data, see `try_data`. It writes
docs/try/operator.onnx. Its input is the permeability at the points of the grid,
`(n, 1)`; its outputs are, in this order,

    pressure (n,), half_width (n,)             the band holds 9 of 10 whole fields
    quantities (2,), quantity_half_widths (2,) mean and maximum, 9 of 10 each
    likeness (2,)                              p-value, distance over the median
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import try_data
from jax2onnx import to_onnx

from opjax import learn, normalize, uncertainty
from opjax.datasets import darcy
from opjax.samples import Sample

COVERAGE, NUM_TEST = 0.9, 200
OUTPUTS = ("pressure", "half_width", "quantities", "quantity_half_widths", "likeness")


def quantities(pressure: jax.Array) -> jax.Array:
    """Mean and maximum of a field."""
    return jnp.stack([jnp.mean(pressure), jnp.max(pressure)])


def likeness(reference: np.ndarray) -> Callable[[jax.Array], jax.Array]:
    """p-value and distance of a case, as `uncertainty.likeness`.

    Unlike there, mean and covariance leave out the new case, also for the p-value:
    with hundreds of reference cases that changes little, and the file needs no solve.
    """
    mean = reference.mean(0)
    scale = (reference.var(0) + 0.01**2) ** 0.5
    z = (reference - mean) / scale
    system = z.T @ z / len(z) + 0.1 * np.eye(z.shape[1])
    white = np.linalg.inv(np.linalg.cholesky(system)).T / scale[:, None]
    known = np.linalg.norm((reference - mean) @ white, axis=1)

    def test(features: jax.Array) -> jax.Array:
        apart = jnp.sqrt(jnp.sum(jnp.square((features - mean) @ white)))
        above = jnp.sum(jnp.where(known >= apart, 1.0, 0.0))
        return jnp.stack([(1 + above) / (1 + len(known)), apart / np.median(known)])

    return test


def exported(
    run: str, cases: Sequence[Sample]
) -> Callable[[jax.Array], tuple[jax.Array, ...]]:
    """The function of the file."""
    trained = learn.load(run)
    found = learn.calibrate(trained, cases, coverage=COVERAGE, width="residual")
    assert found.reference is not None and cases[0].target is not None
    errors = []
    for case in cases:
        pair = trained(case), case.target
        errors.append(np.abs(np.subtract(*[quantities(jnp.asarray(p)) for p in pair])))
    halves = [
        float(uncertainty.conformal_quantile(each, coverage=COVERAGE))
        for each in np.stack(errors, axis=1)
    ]
    band = found.band_function(cases[0])
    test = likeness(found.reference.features)
    points = cases[0].mesh_points

    def function(permeability: jax.Array) -> tuple[jax.Array, ...]:
        lower, upper = band(trained.parameters, points, permeability)
        pressure = (lower + upper) / 2
        arrays = {"mesh_points": points, "features": permeability, "target": pressure}
        fields = [
            normalize.encode(trained.normalizers[name], array)
            if name in trained.normalizers
            else array
            for name, array in arrays.items()
        ]
        moments = uncertainty.field_moments(jnp.concatenate(fields, axis=1))
        return (
            pressure[:, 0],
            (upper - lower)[:, 0] / 2,
            quantities(pressure),
            jnp.asarray(halves, jnp.float32),
            test(moments),
        )

    return function


def main(run: str, folder: str) -> None:
    """Writes the file, and prints how the operator does on test cases."""
    side = try_data.CELLS // try_data.BLOCK
    sizes = {"num_points": side, "stride": 1, "num_train": 1}
    _, found = darcy.load(folder, **sizes, num_test=try_data.SIZES["smooth2"])
    function = exported(run, found[NUM_TEST:])
    compiled = jax.jit(function)
    errors, inside = [], []
    for case in found[:NUM_TEST]:
        pressure, half, *_ = compiled(case.features)
        error = np.abs(pressure - case.target[:, 0])
        errors.append(np.linalg.norm(error) / np.linalg.norm(case.target))
        inside.append(np.all(error <= half))
    print(f"relative L2 {np.mean(errors):.4f}, whole fields inside {np.mean(inside):.3f}")
    path = Path(__file__).parents[1] / "try" / "operator.onnx"
    shape = jax.ShapeDtypeStruct((side**2, 1), jnp.float32)
    to_onnx(
        function,
        inputs=[shape],
        input_names=["permeability"],
        output_names=list(OUTPUTS),
        return_mode="file",
        output_path=str(path),
    )
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
