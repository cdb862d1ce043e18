"""Minimises a quantity of a case between bounds, with a guard."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from opjax import _checks
from opjax.design._terms import Cells, Function, Functions, Terms
from opjax.design._variables import Bounds, Box, Variables


class Guard(NamedTuple):
    """Keeps a design where an operator can be trusted.

    Attributes:
      band: `band(case)`, half the width of the interval of the objective, or another
        measure of its uncertainty; None for no penalty.
      weight: factor of the band in what is minimised. With 1, that is the upper end of
        the interval.
      unlikeness: `unlikeness(case)`, larger for cases that are less similar to the
        calibration cases, such as `Calibration.unlikeness`; None for no trust region.
      limit: largest unlikeness of a design.

    Examples:
      >>> from opjax import design
      >>> design.Guard(unlikeness=lambda case: case["x"] ** 2 - 4).limit
      0.0
    """

    band: Function | None = None
    weight: float = 1.0
    unlikeness: Function | None = None
    limit: float = 0.0


class Reach(NamedTuple):
    """A quantity that a design has to reach.

    Attributes:
      quantity: `quantity(case)`, a scalar.
      value: the value to reach.
      tolerance: largest accepted difference from it, in the unit of the quantity.

    Examples:
      >>> from opjax import design
      >>> design.Reach(lambda case: case["x"], value=0.3, tolerance=1e-3).value
      0.3
    """

    quantity: Function
    value: float
    tolerance: float


class Step(NamedTuple):
    """One step of a design.

    Attributes:
      number: of the step; 0 for the start.
      value: of the objective.
      band: of the guard; 0 without one.
      unlikeness: of the guard; 0 without one.
      reached: values of the quantities to reach.
      inside: whether the step is in the trust region and reaches all values.
      smallest_cell: smallest ratio of the volume of a cell to that at the start; 1
        without `volumes`.
      variables: by name.

    Examples:
      >>> from opjax import design
      >>> print(design.Step(2, -0.8, 0.05, -1.5, (), True, 0.9, {}))
      step 2: value -0.8, band 0.05, unlikeness -1.5, smallest cell 0.9
    """

    number: int
    value: float
    band: float
    unlikeness: float
    reached: tuple[float, ...]
    inside: bool
    smallest_cell: float
    variables: Mapping[str, Any]

    def __str__(self) -> str:
        """Describes the step in one line."""
        words = [f"value {self.value:.4g}", f"band {self.band:.3g}"]
        words += [f"unlikeness {self.unlikeness:.3g}"]
        words += [f"reached {value:.4g}" for value in self.reached]
        words += [f"smallest cell {self.smallest_cell:.3g}"]
        words += ["outside"] * (not self.inside)
        return f"step {self.number}: " + ", ".join(words)


class Found(NamedTuple):
    """A design.

    Attributes:
      best: the accepted step with the smallest `value + weight * band`.
      steps: all steps, the start first.
      message: how the optimiser ended.

    Examples:
      >>> from opjax import design
      >>> found = design.minimise(
      ...     lambda case: case["x"] ** 2, {"x": 1.0}, {"x": (-2.0, 2.0)}
      ... )
      >>> abs(found.best.value) < 1e-6, found.steps[0].value
      (True, 1.0)
    """

    best: Step
    steps: tuple[Step, ...]
    message: str


def minimise(
    objective: Function,
    start: Variables,
    bounds: Bounds,
    *,
    case: Callable[..., Any] | None = None,
    constants: Any = None,
    guard: Guard | None = None,
    reach: Sequence[Reach] = (),
    volumes: Function | None = None,
    num_steps: int = 50,
    on_step: Callable[[Step], object] | None = None,
) -> Found:
    """Minimises a quantity of a case. To maximise, negate it.

    Args:
      objective: `objective(case)`, a scalar that JAX can differentiate.
      start: variables by name, numbers or arrays.
      bounds: smallest and largest value of each variable, numbers or arrays. For the
        scalars of an operator, take the training ranges or narrower ones,
        `trained.description.ranges["scalars"]`.
      case: `case(variables)`, what the other functions take, such as the arguments of
        `trained.function`. By default, the variables.
      constants: arrays that `case(variables, constants)` takes too, if any. Designs
        with the same functions and other constants, such as other meshes to start from,
        are compiled once.
      guard: none by default. Then the design is often one where the operator is wrong.
      reach: quantities that the design has to reach.
      volumes: `volumes(case)` of the cells of its mesh, such as
        `signed_volumes(case.points, cells, "quad")`, to detect folded meshes.
      num_steps: maximum number of steps.
      on_step: called with each step, such as `print`.

    Returns:
      The best step inside the trust region, and all steps.

    Raises:
      ValueError: if the start is outside the bounds, the objective does not depend on
        the variables or its derivative is not finite, a step inverts a cell, or no
        step is in the trust region and reaches all quantities.

    Examples:
      >>> from opjax import design
      >>> found = design.minimise(
      ...     lambda case: -case["x"],
      ...     {"x": 0.0},
      ...     {"x": (0.0, 9.0)},
      ...     guard=design.Guard(unlikeness=lambda case: case["x"] ** 2 - 4),
      ... )
      >>> round(float(found.best.variables["x"]), 2)  # the edge of the trust region
      2.0
    """
    from scipy import optimize

    _checks.positive(num_steps=num_steps)
    box, guard = Box(start, bounds), guard or Guard()
    functions = Functions(
        objective,
        case,
        guard.band,
        guard.unlikeness,
        tuple(one.quantity for one in reach),
        volumes,
        box.layout,
    )
    numbers = guard.weight, guard.limit, [one.value for one in reach]
    arguments = box.low, box.width, constants, *numbers
    terms = Terms(functions, arguments)
    cells = None if volumes is None else Cells(functions, arguments)
    steps: list[Step] = []

    def record(units: np.ndarray) -> None:
        value, band, unlike, *reached = terms(units, len(steps)).numbers
        close = [
            abs(result - one.value) <= one.tolerance
            for result, one in zip(reached, reach, strict=True)
        ]
        inside = all(close) and (guard.unlikeness is None or unlike <= guard.limit)
        smallest = 1.0 if cells is None else cells.smallest(units, len(steps))
        variables = box.variables(np.asarray(units, np.float64))
        said = value, band, unlike, tuple(reached)
        steps.append(Step(len(steps), *said, inside, smallest, variables))
        if on_step is not None:
            on_step(steps[-1])

    def constraint(row: int, kind: str) -> dict[str, Any]:
        return {
            "type": kind,
            "fun": lambda units: terms(units, len(steps)).values[row],
            "jac": lambda units: terms(units, len(steps)).slopes[row],
        }

    units = box.units(start)
    record(units)
    accuracy = float(jnp.finfo(jnp.asarray(0.0).dtype).eps) ** 0.75
    solution = optimize.minimize(
        lambda units: terms(units, len(steps)).values[0],
        units,
        jac=lambda units: terms(units, len(steps)).slopes[0],
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(units),
        constraints=[constraint(row, kind) for row, kind in terms.constraints],
        callback=record,
        options={"maxiter": int(num_steps), "ftol": accuracy},
    )
    return Found(_best(steps, guard, reach), tuple(steps), str(solution.message))


def _best(steps: Sequence[Step], guard: Guard, reach: Sequence[Reach]) -> Step:
    inside = [step for step in steps if step.inside]
    if not inside:
        least = min(step.unlikeness for step in steps)
        goals = ", ".join(f"{one.value:g}" for one in reach) or "none"
        raise ValueError(
            f"None of {len(steps)} steps is accepted. The smallest unlikeness is "
            f"{least:.3g}, its limit {guard.limit:.3g}; values to reach: {goals}; the "
            f"last one was: {steps[-1]}. Start from a case like those of the "
            "calibration, or allow more steps."
        )
    return min(inside, key=lambda step: step.value + guard.weight * step.band)
