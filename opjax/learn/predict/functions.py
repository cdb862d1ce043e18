"""Trained operators as pure functions of arrays in physical units.

`Trained.__call__` works on the host, with value checks, padding and chunks. These
functions do the same without them, and support JAX's transformations: `jit`, `grad`,
`jvp`, `vmap`, `hessian`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import normalize
from opjax._trees import Model
from opjax.learn.config.quantities import Quantity, parse
from opjax.learn.predict import grids, prediction, stepping
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import Predicted
from opjax.learn.predict.quantities import Measured
from opjax.normalize import Normalizer, is_single
from opjax.samples import Sample
from opjax.samples.base import real
from opjax.samples.normalizers import encode

_OUTPUTS = ("target", "target_scalars")  # as in `Predicted`
Function = Callable[..., Any]  # of parameters and arrays
Scalars = ArrayLike | Mapping[str, ArrayLike]


class Parameters(NamedTuple):
    """All numbers of a trained operator, as a pytree of arrays.

    Attributes:
      model: the model, which maps normalised arrays.
      normalizers: normalisers by array name.
    """

    model: Model
    normalizers: dict[str, Normalizer]


class Arguments(NamedTuple):
    """The arrays of one case in physical units, in the order of the arguments.

    Attributes:
      points: points of the mesh, `(n, p)`.
      features: values of the input function, `(n, c)`; for an operator of series, the
        input frames, oldest first, and the constant inputs.
      scalars: scalars of the case, `(s,)`, in the order of `scalars_of`.
      quadrature_weights: weights of the points, `(n,)`.
    """

    points: Any
    features: Any = None
    scalars: Any = None
    quadrature_weights: Any = None


class Case(NamedTuple):
    """One case of a call, which JAX may trace.

    Attributes:
      sample: its checked arrays in physical units.
      arrays: inputs of the model, divided by the scales of the case.
      factors: scales of the channels, by name of the array.
    """

    sample: Sample
    arrays: dict[str, Any]
    factors: dict[str, jax.Array]

    def reduced(self, values: Any) -> Any:
        """Divides a field in physical units by its scale."""
        factor = self.factors.get("target")
        return values if factor is None else values / _row_of(factor, values)

    def physical(self, values: Any, role: str = "target") -> Any:
        """Multiplies scaled predictions by their scale."""
        factor = self.factors.get(role)
        return values if factor is None else values * _row_of(factor, values)


def scalars_of(trained: Learned) -> list[str]:
    """Names of the scalar arguments of an operator's functions, in order.

    First the scalars of the operator, then numbers that only its scales use.
    """
    names = list(trained.channel_names.get("scalars") or ())
    return names + [name for name in trained.description.numbers if name not in names]


def arguments(trained: Learned, sample: Sample) -> Arguments:
    """Returns the arrays of a sample, as arguments of an operator's functions."""
    scalars, extra = sample.scalars, scalars_of(trained)
    if trained.scaling is not None:
        values = trained.scaling.values(sample)
        scalars = np.asarray([values[name] for name in extra]) if extra else None
    arrays = (
        None if array is None else jnp.asarray(array)
        for array in (
            sample.mesh_points,
            sample.features,
            scalars,
            sample.quadrature_weights,
        )
    )
    return Arguments(*arrays)


def operator(trained: Learned) -> Function:
    """Implements `Trained.function`.

    Raises:
      ValueError: if the operator starts from a baseline.
    """
    if trained.start is not None:
        raise ValueError(
            f"The operator in {trained.folder} adds to a baseline, which JAX "
            "cannot differentiate; train without --start_from to differentiate it."
        )

    def call(parameters: Parameters, given: Arguments, time: ArrayLike | None) -> Any:
        checked = case(trained, given)
        if trained.description.time is not None:
            return _next_frame(trained, parameters, checked.arrays, time)
        encoded = encode(checked.arrays, parameters.normalizers)
        time = None if time is None else jnp.asarray(time, encoded["mesh_points"].dtype)
        encoded_output = _called(parameters.model, encoded, time)
        physical = [
            None if part is None else _decoded(parameters, checked, role, part)
            for role, part in zip(_OUTPUTS, encoded_output, strict=True)
        ]
        return physical[0] if physical[1] is None else Predicted(*physical)

    return of_arguments(call)


def of_arguments(call: Callable[[Parameters, Arguments, Any], Any]) -> Function:
    """Returns a call of parameters, arguments and time as a function of arrays."""

    def function(
        parameters: Parameters,
        points: ArrayLike,
        features: ArrayLike | None = None,
        scalars: Scalars | None = None,
        quadrature_weights: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> Any:
        given = Arguments(points, features, scalars, quadrature_weights)
        return call(parameters, given, time)

    return function


def field(output: Any) -> Any:
    """Returns the field that an operator predicts, without its scalars."""
    return output.values if isinstance(output, Predicted) else output


def case(trained: Learned, given: Arguments) -> Case:
    """Returns the checked arrays of a call.

    Raises:
      ValueError: if shapes do not fit the operator, or inputs have an offset that their
        precision would lose.
    """
    sample, numbers = _sample(trained, given)
    _check_precision(trained, sample)
    arrays: dict[str, Any] = prediction.arrays_of(sample)
    scaling = trained.scaling
    if scaling is None:
        return Case(sample, arrays, {})
    channels = trained.channels._asdict()
    factors = scaling.traced_factors(numbers, channels)
    arrays = {
        k: a / _row_of(factors[k], a) if k in factors else a for k, a in arrays.items()
    }
    if "scalars" in arrays:
        arrays["scalars"] = scaling.turned(arrays["scalars"])
    return Case(sample, arrays, factors)


def quantity(trained: Learned, text: str, sample: Sample) -> Function:
    """Implements `Trained.quantity`.

    Args:
      trained: the operator.
      text: one quantity, in the syntax of the flag.
      sample: the sample that provides the mesh.

    Raises:
      ValueError: if the text is not exactly one quantity, or it is not defined on the
        mesh; as from `operator`.
    """
    predict = operator(trained)
    measured = Measured(one(text), sample, trained.channel_names)

    def call(
        parameters: Parameters, given: Arguments, time: ArrayLike | None
    ) -> jax.Array:
        case, _ = _sample(trained, given)
        check_same_mesh(text, case, sample)
        return measured(case, field(predict(parameters, *given, time)))

    return of_arguments(call)


def one(text: str) -> Quantity:
    """Parses a text that contains exactly one quantity.

    Raises:
      ValueError: if it contains none or several.
    """
    quantities = parse(text)
    if len(quantities) != 1:
        raise ValueError(
            f"quantity={text!r} contains {len(quantities)} quantities, expected one."
        )
    return quantities[0]


def check_same_mesh(what: str, given: Sample, mesh: Sample) -> None:
    """Raises ValueError if a call has another number of points than the mesh."""
    if given.num_points != mesh.num_points:
        raise ValueError(
            f"{what}: the call has {given.num_points} points, but the mesh of "
            f"{mesh.name}, which defines the boundaries, has {mesh.num_points}."
        )


def on_grids(trained: Learned) -> Function:
    """Returns a function of parameters and of values on uniform grids.

    See `grids.layout` for the shapes.
    """
    function = operator(trained)

    def evaluate(parameters: Parameters, values: Any, scalars: Any, time: Any) -> Any:
        values = _real("The values on a grid", values)
        layout = grids.layout(trained, values.shape)
        points, rows = jnp.asarray(layout.points, values.dtype), layout.rows
        predicted = jax.vmap(
            lambda row: function(parameters, points, row, scalars, None, time)
        )(values.reshape(rows))
        return jnp.reshape(field(predicted), layout.output_shape)

    return evaluate


def is_traced(*arguments: object) -> bool:
    """Whether JAX is tracing the arguments."""
    leaves = jax.tree.leaves(arguments)
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _sample(trained: Learned, given: Arguments) -> tuple[Sample, dict[str, jax.Array]]:
    """The checked arrays of a case, and its numbers by name."""
    points, features, scalars, weights = given
    points, features, weights = grids.by_rows(_real, points, features, weights)
    names = scalars_of(trained)
    if isinstance(scalars, Mapping):
        if missing := [name for name in names if name not in scalars]:
            raise ValueError(
                f"scalars have no {missing[0]!r}, which the operator in "
                f"{trained.folder} takes; it needs {', '.join(names)}."
            )
        if unknown := [name for name in scalars if name not in names]:
            raise ValueError(
                f"scalars have {unknown[0]!r}, which the operator in {trained.folder} "
                f"does not take; it needs {', '.join(names) or 'none'}."
            )
        scalars = jnp.stack([jnp.asarray(scalars[n], points.dtype) for n in names])
    row: Any = None if scalars is None else jnp.atleast_1d(_real("scalars", scalars))
    expected = len(names) or trained.channels.scalars
    if (0 if row is None else row.shape[0]) != expected:
        raise ValueError(
            f"scalars have shape {None if row is None else row.shape}, but the "
            f"operator in {trained.folder} takes {expected}"
            + (f": {', '.join(names)}, in this order." if names else ".")
        )
    numbers = {} if row is None else dict(zip(names, row, strict=False))
    own = trained.channels.scalars
    sample = Sample(
        points,
        features=features,
        quadrature_weights=weights,
        scalars=row[:own] if own and row is not None else None,
        grid_shape=trained.sizes.grid_shape if trained.fixed_points else None,
        name="the call",
    )
    prediction.check(trained, sample, weights=True)
    return sample, numbers


def _real(name: str, values: ArrayLike) -> jax.Array:
    """Real numbers of any type in the precision of JAX, see `samples.base.real`."""
    array = jnp.asarray(values)
    if array.dtype in (jnp.float32, jnp.float64):
        return array
    large = real(name, np.empty(0, array.dtype)).dtype
    return array.astype(jax.dtypes.canonicalize_dtype(large))


def _check_precision(trained: Learned, sample: Sample) -> None:
    """Raises ValueError where single precision would lose an offset of the inputs."""
    for name in (k for k, n in trained.normalizers.items() if not is_single(n)):
        array = getattr(sample, name, None)
        if array is not None and array.dtype != jnp.float64:
            raise ValueError(
                f"{name} have an offset that is too large for {array.dtype}; pass "
                "float64 arrays inside `with jax.enable_x64(True):`, or subtract "
                f"the offset and train again (the operator is in {trained.folder})."
            )


def _called(model: Model, encoded: dict[str, Any], time: Any) -> Predicted:
    """Evaluates a model; says what to do where it has no forward mode.

    Of `jax.jvp(jax.jit(f), ...)` JAX says so itself, when nothing of ours runs.
    """
    try:
        return prediction.call_both(model, encoded, time=time)
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        raise TypeError(
            "This operator has no forward mode (jax.jvp, jacfwd): chunks of points "
            "(chunk_size) and convolutions on grids have a rule for reverse mode only. "
            "Use jax.grad and jax.jacrev. For a Hessian, use jax.hessian, or with "
            "chunk_size jax.jacrev(jax.grad(f))."
        ) from error


def _decoded(parameters: Parameters, case: Case, role: str, values: Any) -> jax.Array:
    if role in parameters.normalizers:
        values = normalize.decode(parameters.normalizers[role], values)
    return case.physical(values, role)


def _row_of(factor: jax.Array, values: Any) -> jax.Array:
    """A factor of each channel, with as many axes as the values have."""
    return jnp.reshape(factor, (1,) * (values.ndim - 1) + (-1,))


def _next_frame(
    trained: Learned,
    parameters: Parameters,
    arrays: dict[str, Any],
    time: ArrayLike | None,
) -> jax.Array:
    """The frame `time` after the last one that the operator sees."""
    how, features = trained.stepping, arrays.pop("features")
    others = encode(arrays, parameters.normalizers)
    lag = jnp.asarray(how.interval if time is None else time, features.dtype)
    step = stepping.Step(how, parameters.normalizers)
    return step.next_frame(parameters.model, others, features, lag)
