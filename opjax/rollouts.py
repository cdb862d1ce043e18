"""Rollouts: repeated application of a step to its own results."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from opjax import _checks

_State = TypeVar("_State")

GRADIENTS = ("all", "last")


def rollout(
    step: Callable[..., _State],
    state: _State,
    num_steps: int | None = None,
    *,
    inputs: Any = None,
    observe: Callable[[_State], Any] | None = None,
    checkpoint: bool = False,
    gradient: str = "all",
) -> Any:
    r"""Applies a step repeatedly, and returns the observation of every state.

        u_{t+1} = step(u_t),    or    u_{t+1} = step(u_t, x_t),    t = 0, ..., s - 1.

    It is one `jax.lax.scan`, so compile time does not grow with the number of steps. It
    supports `jax.jit`, `jax.vmap` and `jax.grad`, also with respect to variables that
    the step closes over, such as the parameters of a model.

    Args:
      step: maps a state to the next one, with the same shapes and dtypes: a function or
        a Flax module. It also takes the input of the step, if there are inputs.
      state: initial state, any pytree of arrays.
      num_steps: number `s` of steps, at least one; optional with `inputs`.
      inputs: pytree of arrays with steps along axis 0, such as times.
      observe: function of a state whose result is returned; the state itself if None.
      checkpoint: recompute the inside of every step for its gradient instead of storing
        it. Memory then grows with the number of steps only by the state, and a gradient
        takes about a third longer.
      gradient: `"all"`: gradients pass through all steps; `"last"`: only through the
        last one, with the state before it as a constant.

    Returns:
      The states `u_1, ..., u_s`, or the results of `observe`, stacked along axis 0 of
      every array.

    Raises:
      TypeError: if a step changes the dtypes or the structure of the state.
      ValueError: if the number of steps is missing, not positive, or differs from the
        inputs'; if a step changes the shapes of the state; or if `gradient` is unknown.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.rollouts import rollout
      >>> rollout(lambda u: 2 * u, jnp.array(1.0), 3).tolist()
      [2.0, 4.0, 8.0]

    References:
      Brandstetter et al., "Message Passing Neural PDE Solvers", ICLR 2022
      (arXiv:2202.03376), for gradients of the last step only.
    """
    _checks.option("gradient", gradient, GRADIENTS)
    count = _number_of_steps(num_steps, inputs)
    state = jax.tree.map(jnp.asarray, state)
    given = inputs is not None
    first = jax.tree.map(lambda x: jnp.asarray(x)[0], inputs)
    _check_step(step, state, (first,) if given else ())

    def advance(before: _State, one: Any) -> tuple[_State, Any]:
        after = step(before, one) if given else step(before)
        return after, after if observe is None else observe(after)

    if checkpoint:
        # Inside of a scan nothing can be merged with the first computation anyway.
        advance = jax.checkpoint(advance, prevent_cse=False)
    run = partial(jax.lax.scan, advance)
    if gradient == "all":
        return run(state, inputs, length=count)[1]
    early = jax.tree.map(lambda x: jnp.asarray(x)[:-1], inputs)
    late = jax.tree.map(lambda x: jnp.asarray(x)[-1:], inputs)
    stopped = jax.lax.stop_gradient(run(state, early, length=count - 1))
    _, last = run(stopped[0], late, length=1)
    return jax.tree.map(lambda *x: jnp.concatenate(x), stopped[1], last)


def _number_of_steps(num_steps: int | None, inputs: Any) -> int:
    """Returns the number of steps; raises ValueError unless there is one number."""
    lengths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(inputs)}
    if num_steps is not None:
        _checks.positive(num_steps=num_steps)
        lengths.add(num_steps)
    if len(lengths) != 1 or 0 in lengths:
        found = sorted(lengths) or "none"
        raise ValueError(
            f"num_steps and axis 0 of the inputs give {found} as number of steps, "
            "expected one positive number; pass num_steps, or inputs of that "
            "length."
        )
    return lengths.pop()


def _check_step(step: Callable[..., Any], state: Any, given: tuple[Any, ...]) -> None:
    """Raises an error unless a step returns a state like the one it takes."""
    after = jax.eval_shape(lambda *x: step(*x), state, *given)
    if jax.tree.structure(after) != jax.tree.structure(state):
        raise TypeError(
            f"The step returns {jax.tree.structure(after)}, but takes "
            f"{jax.tree.structure(state)}; it must return the whole next state."
        )
    pairs = zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True)
    for before, now in pairs:
        if before.shape != now.shape:
            raise ValueError(
                f"The step maps an array of shape {before.shape} to shape "
                f"{now.shape}; it must keep the shape."
            )
        if before.dtype != now.dtype:
            raise TypeError(
                f"The step maps dtype {before.dtype} to {now.dtype}; convert the "
                f"initial state, x.astype({str(now.dtype)!r}), or the result of "
                "the step."
            )
