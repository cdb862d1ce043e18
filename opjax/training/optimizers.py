"""Optimizers of published operator-learning runs: torch's AdamW with OneCycleLR.

optax has functions with these names, but with other values: its one-cycle schedule has
its maximum one step later, and torch also cycles beta1. These functions follow torch up
to rounding error, so learning curves are comparable, and are accurate in float32.

Schedules and optimizers are pytrees: their numbers, such as learning rates and lengths,
are leaves. Programs compiled by `training.jit_with` take them as arguments, so that a
training with other numbers finds its program in the compilation cache.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.tree_util import Partial

from opjax import _checks
from opjax._trees import Number, PyTree

Schedule = Callable[[Any], Array]


def onecycle(
    peak: float,
    total_steps: int,
    *,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    r"""Learning-rate schedule equal to torch's `OneCycleLR`, step for step.

        r(i) = a cos^2(pi t / 2) + b sin^2(pi t / 2),

    with (a, b, t) = (peak / div, peak, i / u) for i <= u = pct_start * total - 1, then
    (peak, peak / (div * final_div), (i - u) / (total - 1 - u)). It differs from
    `optax.cosine_onecycle_schedule`, whose maximum is one step later and whose final
    value is different.

    Args:
      peak: maximum learning rate.
      total_steps: number of optimizer steps of the run; afterwards the last value is
        kept.
      pct_start: fraction of the run with increasing rate.
      div_factor: ratio of the peak to the first value.
      final_div_factor: ratio of the first value to the last.

    Returns:
      A function of the step, counted from zero, in the default float dtype.

    Raises:
      ValueError: if an argument is out of range.

    Examples:
      >>> from opjax import training
      >>> rate = training.onecycle(1e-3, total_steps=100)
      >>> [round(float(rate(step)), 6) for step in (0, 29, 99)]
      [4e-05, 0.001, 0.0]

    References:
      Smith and Topin, "Super-convergence", 2018; `torch.optim.lr_scheduler.OneCycleLR`.
    """
    _checks.positive(
        peak=peak, div_factor=div_factor, final_div_factor=final_div_factor
    )
    first = peak / div_factor
    return _cycle(first, peak, first / final_div_factor, total_steps, pct_start)


def onecycle_momentum(
    total_steps: int,
    *,
    pct_start: float = 0.3,
    base: float = 0.85,
    largest: float = 0.95,
) -> Schedule:
    """Adam's beta1 with torch's `OneCycleLR`: from `largest` to `base` and back.

    torch cycles beta1 by default (`cycle_momentum`), overriding the value passed to
    AdamW, so published one-cycle runs did not use beta1 = 0.9.

    Args:
      total_steps: number of optimizer steps of the run.
      pct_start: fraction of the run with decreasing beta1.
      base: minimum of beta1, reached when the learning rate has its maximum.
      largest: first and last value of beta1.

    Returns:
      A function of the step, counted from zero.

    Raises:
      ValueError: if an argument is out of range.

    Examples:
      >>> from opjax import training
      >>> beta1 = training.onecycle_momentum(total_steps=100)
      >>> [round(float(beta1(step)), 4) for step in (0, 29, 99)]
      [0.95, 0.85, 0.95]
    """
    if not 0 <= base <= largest < 1:
        raise ValueError(
            f"{base=} and {largest=} must satisfy 0 <= base <= largest < 1."
        )
    return _cycle(largest, base, largest, total_steps, pct_start)


def _cycle(
    first: float, middle: float, last: float, total_steps: int, pct_start: float
) -> Schedule:
    if total_steps < 1:
        raise ValueError(f"{total_steps=} must be at least 1.")
    if not 0 <= pct_start <= 1:
        raise ValueError(f"{pct_start=} must lie between 0 and 1.")
    turn, end = pct_start * total_steps - 1, total_steps - 1
    rise = turn if turn > 0 else 1.0
    fall = end - turn if end > turn else 1.0
    return Partial(_at, first, middle, last, turn, rise, fall)


def _at(
    first: Number,
    middle: Number,
    last: PyTree,
    turn: Number,
    rise: Number,
    fall: Number,
    step: Number,
) -> Array:
    """The value of a cycle: up to `turn`, in `rise` steps, and down in `fall` steps."""
    step = jnp.asarray(step, float)
    rising = (step <= turn) & (turn > 0)
    part = jnp.where(rising, step / rise, (step - turn) / fall)
    quarter = jnp.pi / 2 * jnp.clip(part, 0, 1)
    # cos^2 and sin^2 rather than 1 + cos: no cancellation where the rate is tiny.
    old, new = jnp.cos(quarter) ** 2, jnp.sin(quarter) ** 2
    return jnp.where(rising, first * old + middle * new, middle * old + last * new)


class AdamWState(NamedTuple):
    """Step count, moments, and the rate and beta1 of the latest update (for logs).

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> params = {"w": jnp.ones(2)}
      >>> optimizer = training.adamw(1e-3, weight_decay=0.0)
      >>> _, state = optimizer.update(params, optimizer.init(params), params)
      >>> int(state.count), round(float(state.learning_rate), 6)
      (1, 0.001)
    """

    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]
    mean: Any
    square: Any
    learning_rate: Array
    beta1: Array


def adamw(
    learning_rate: float | Schedule,
    *,
    weight_decay: float,
    b1: float | Schedule = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> optax.GradientTransformation:
    r"""AdamW as in torch, with learning rate and beta1 that may depend on the step.

        m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,
        p = p - r (m / (1 - b1^t)) / ((v / (1 - b2^t))^{1/2} + eps) - r weight_decay p,

    for all parameters, including biases and scales, with the current b1 in the bias
    correction b1^t.

    Args:
      learning_rate: number, or function of the step counted from zero.
      weight_decay: decoupled weight decay, multiplied by the learning rate.
      b1: decay of the mean of the gradient; number or function of the step.
      b2: decay of the mean of its square.
      eps: positive, added to the root mean square.

    Returns:
      The gradient transformation; its state is an `AdamWState`.

    Raises:
      ValueError: if `b1` (if it is a number) or `b2` is not in [0, 1), `eps` is not
        positive or `weight_decay` is negative.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> params, gradient = {"w": jnp.ones(2)}, {"w": jnp.array([1.0, -1.0])}
      >>> optimizer = training.adamw(0.5, weight_decay=0.0)
      >>> updates, _ = optimizer.update(gradient, optimizer.init(params), params)
      >>> [round(float(w), 2) for w in updates["w"]]
      [-0.5, 0.5]

    References:
      Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """
    for name, beta in (("b1", b1), ("b2", b2)):
        if isinstance(beta, int | float) and not 0 <= beta < 1:
            raise ValueError(f"{name}={beta} must satisfy 0 <= {name} < 1.")
    _checks.positive(eps=eps)
    _checks.non_negative(weight_decay=weight_decay)
    numbers = _Numbers(
        learning_rate,
        b1,
        b2,
        1 - b2,
        math.log(b2) if b2 > 0 else -math.inf,
        eps,
        weight_decay,
    )
    return optax.GradientTransformation(
        Partial(_init_adamw, numbers),
        Partial(_update_adamw, numbers),  # pyright: ignore[reportArgumentType]
    )


class _Numbers(NamedTuple):
    """Numbers of `adamw`; differences and logarithms of doubles, before rounding."""

    learning_rate: Any
    b1: Any
    b2: Any
    one_minus_b2: Any
    log_b2: Any
    eps: Any
    weight_decay: Any


def _value(number: Any, count: Array) -> Array:
    """A number, or that of a schedule."""
    return jnp.asarray(number(count) if callable(number) else number, float)


def _init_adamw(numbers: _Numbers, params: PyTree) -> AdamWState:
    count = jnp.zeros((), jnp.int32)
    mean = jax.tree.map(jnp.zeros_like, params)
    square = jax.tree.map(jnp.zeros_like, params)
    rate, beta = _value(numbers.learning_rate, count), _value(numbers.b1, count)
    return AdamWState(count, mean, square, rate, beta)


def _update_adamw(
    numbers: _Numbers, updates: PyTree, state: PyTree, params: PyTree = None
) -> tuple[Any, AdamWState]:
    if params is None:
        raise ValueError("Weight decay needs the parameters: pass params to update.")
    b2, eps, decay = numbers.b2, numbers.eps, numbers.weight_decay
    rate = _value(numbers.learning_rate, state.count)
    beta = _value(numbers.b1, state.count)
    count = state.count + 1
    steps = count.astype(rate.dtype)
    # 1 - b^t by expm1: float32 would lose four digits of 1 - 0.999.
    unbias1 = -jnp.expm1(steps * jnp.log(beta))
    unbias2 = -jnp.expm1(steps * numbers.log_b2)

    def moment(m: Array, g: Array) -> Array:
        return m + (1 - beta).astype(g.dtype) * (g - m)

    def direction(m: Array, v: Array, p: Array) -> Array:
        r, u1, u2 = (x.astype(p.dtype) for x in (rate, unbias1, unbias2))
        return -r * (m / u1 / (jnp.sqrt(v / u2) + eps) + decay * p)

    mean = jax.tree.map(moment, state.mean, updates)
    square = jax.tree.map(
        lambda v, g: b2 * v + numbers.one_minus_b2 * g * g, state.square, updates
    )
    updates = jax.tree.map(direction, mean, square, params)
    return updates, AdamWState(count, mean, square, rate, beta)


def clip_gradient_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales gradients by `min(1, max_norm / (norm + 1e-6))`, like torch's clipping.

    Args:
      max_norm: maximum global Euclidean norm over all leaves.

    Returns:
      A stateless gradient transformation.

    Raises:
      ValueError: if `max_norm` is not positive.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> rule = training.clip_gradient_norm(1.0)
      >>> gradient, _ = rule.update({"w": jnp.array([3.0, 4.0])}, rule.init({}))
      >>> [round(float(entry), 2) for entry in gradient["w"]]
      [0.6, 0.8]
    """
    if not max_norm > 0:
        raise ValueError(f"{max_norm=} must be positive; omit it for no clipping.")

    return optax.GradientTransformation(_no_state, Partial(_clip, max_norm))


def _no_state(params: PyTree) -> optax.EmptyState:
    del params
    return optax.EmptyState()


def _clip(
    max_norm: Number, updates: PyTree, state: PyTree, params: PyTree = None
) -> tuple[Any, Any]:
    del params
    scale = jnp.minimum(1.0, max_norm / (optax.tree.norm(updates) + 1e-6))
    return jax.tree.map(lambda g: g * scale.astype(g.dtype), updates), state


def chain(*rules: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies transformations in sequence, like `optax.chain`, with numbers as leaves.

    Args:
      *rules: gradient transformations; their numbers stay leaves if they are.

    Returns:
      The gradient transformation; its state is a tuple of their states.

    Examples:
      >>> from opjax import training
      >>> clip = training.clip_gradient_norm(1.0)
      >>> optimizer = training.chain(clip, training.adamw(1e-3, weight_decay=0.0))
      >>> len(optimizer.init({"w": 0.0}))  # a state for each rule
      2
    """
    return optax.GradientTransformation(
        Partial(_init_chain, *(rule.init for rule in rules)),
        Partial(_update_chain, tuple(rule.update for rule in rules)),
    )


def _init_chain(*given: Any) -> tuple[Any, ...]:
    *inits, params = given
    return tuple(init(params) for init in inits)


def _update_chain(
    rules: tuple[Any, ...], updates: PyTree, state: PyTree, params: PyTree = None
) -> tuple[Any, tuple[Any, ...]]:
    states: list[Any] = []
    for rule, old in zip(rules, state, strict=True):
        updates, new = rule(updates, old, params)
        states.append(new)
    return updates, tuple(states)


def scale_updates(sizes: PyTree) -> optax.GradientTransformation:
    """Multiplies updates by given sizes, so that learning rates are relative to them.

    After Adam in a chain, a rate of 0.1 changes every parameter by a tenth of its size.

    Args:
      sizes: numbers or arrays in the structure of the parameters, such as the second
        result of `opjax.nn.schwarz.calibrate`.

    Returns:
      A stateless gradient transformation.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> rule = training.scale_updates({"w": 10.0})
      >>> updates, _ = rule.update({"w": jnp.array([0.5])}, rule.init({}))
      >>> updates["w"].tolist()
      [5.0]
    """

    def update(updates: PyTree, params: PyTree = None) -> Any:
        del params
        return jax.tree.map(jnp.multiply, updates, sizes)

    return optax.stateless(update)


def adamw_onecycle(
    peak: float,
    total_steps: int,
    *,
    weight_decay: float,
    clip_norm: float | None = None,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    cycle_momentum: bool = True,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> optax.GradientTransformation:
    """Gradient clipping, then AdamW with a one-cycle schedule, as in torch.

    Args:
      peak: maximum learning rate.
      total_steps: number of optimizer steps of the run.
      weight_decay: decoupled weight decay of all parameters.
      clip_norm: maximum global gradient norm; None for no clipping.
      b1: beta1 if it is not cycled; ignored otherwise, as in torch.
      b2: decay of the mean squared gradient.
      eps: offset of the root mean square.
      cycle_momentum: cycle beta1 through 0.95, 0.85, 0.95, torch's default.
      pct_start: fraction of the run with increasing rate.
      div_factor: ratio of the maximum to the first learning rate.
      final_div_factor: ratio of the first learning rate to the last.

    Returns:
      The gradient transformation.

    Raises:
      ValueError: if an argument is out of range.

    Examples:
      >>> from opjax import training
      >>> optimizer = training.adamw_onecycle(1e-3, total_steps=100, weight_decay=1e-5)
      >>> state = training.init({"w": 1.0}, optimizer)
      >>> int(state.step)
      0
    """
    rate = onecycle(
        peak,
        total_steps,
        pct_start=pct_start,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
    )
    beta = onecycle_momentum(total_steps, pct_start=pct_start) if cycle_momentum else b1
    rule = adamw(rate, weight_decay=weight_decay, b1=beta, b2=b2, eps=eps)
    return rule if clip_norm is None else chain(clip_gradient_norm(clip_norm), rule)
