"""User-defined formulas: `load/modulus`, `(x-5)^2 + y^2 < 1.01 and z > 0`.

A formula combines numbers and names with `+ - * / ^ ( )`, the functions in `FUNCTIONS`
and `pi`; `**` equals `^`. A condition compares such values with `< <= > >= == !=`, and
joins comparisons with `and`, `or`, `not`. A name with spaces or other characters is
quoted: `load / "Young modulus"`. Python's grammar parses the text, but only the
elements listed here are accepted, and nothing is executed.
"""

import ast
import dataclasses
import functools
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

MAX_CHARACTERS = 2000
_Function = Callable[..., Any]

# Names of functions in formulas, and in NumPy and JAX.
FUNCTIONS = {
    "sqrt": "sqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "exp": "exp",
    "log": "log",
    "log10": "log10",
    "abs": "abs",
    "min": "minimum",
    "max": "maximum",
}
_OF_MANY = ("min", "max")
_CONSTANTS = {"pi": math.pi}
_ARITHMETIC: dict[type[ast.operator], _Function] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], _Function] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_SIGNS: dict[type[ast.unaryop], _Function] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_REFUSED = {"&": "; write and", "|": "; write or", "#": "", "\\": ""}
_QUOTED = re.compile(r"""("[^"]*"|'[^']*')""")
_ALLOWED = (
    f"numbers, names, + - * / ^ ( ), {', '.join(FUNCTIONS)} and pi; in conditions < <= "
    "> >= == !=, and, or, not"
)


@dataclasses.dataclass(frozen=True)
class Expression:
    """A formula or a condition, as `parse` reads it.

    Attributes:
      text: text of the formula.
      is_condition: whether its values are booleans, not numbers.
      names: required names in order of first appearance, without `pi`.
    """

    text: str
    is_condition: bool
    names: tuple[str, ...]
    _tree: ast.expr = dataclasses.field(repr=False, compare=False)

    def __call__(self, values: Mapping[str, ArrayLike]) -> np.ndarray:
        """Computes the formula in double precision.

        Args:
          values: finite numbers or arrays of one shape, by name. A value named `pi`
            is preferred to the constant. Names that the formula lacks are not used.

        Returns:
          An array of float64, or of booleans for a condition, of the shape of all
          values that it uses.

        Raises:
          ValueError: if a name has no value, or a part of the formula is not finite,
            such as a division by zero or the root of a negative number.
        """
        if missing := [name for name in self.names if name not in values]:
            raise ValueError(
                f"{self.text!r} has the name {missing[0]!r}, which is unknown; "
                f"available: {', '.join(values) or 'none'}."
            )
        used: dict[str, np.ndarray | float] = dict(_CONSTANTS)
        for name in {*self.names, *_CONSTANTS} & {*values}:
            used[name] = np.asarray(values[name], np.float64)
            if not np.isfinite(used[name]).all():
                raise ValueError(
                    f"{self.text!r}: {name} has values that are not numbers."
                )
        try:
            with np.errstate(all="ignore"):
                result = _computed(self._tree, used, self.text)
        except RecursionError:
            raise _too_deep(self.text) from None
        shapes = [np.shape(used[name]) for name in self.names]
        return np.array(np.broadcast_to(result, np.broadcast_shapes(*shapes)))

    def traced(self, values: Mapping[str, jax.Array]) -> jax.Array:
        """Evaluates a formula for numbers that JAX traces, without a check for NaN.

        Args:
          values: numbers or arrays of one shape, by name.
        """
        return _computed(self._tree, {**_CONSTANTS, **values}, None)


def parse(text: str, *, condition: bool = False) -> Expression:
    """Reads a formula, or a condition.

    Args:
      text: formula of at most `MAX_CHARACTERS` characters.
      condition: whether a condition is expected instead of a number.

    Raises:
      ValueError: if the text contains an unsupported element (the message gives its
        position), or is a number instead of a condition, or the reverse.
    """
    if not text.strip():
        raise ValueError("A formula is empty; write one, such as load/modulus.")
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"A formula has {len(text)} characters, expected at most {MAX_CHARACTERS}."
        )
    source = _Source(text)
    names: dict[str, None] = {}
    try:
        tree = source.tree()
        is_condition = source.kind(tree, names)
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    if is_condition and not condition:
        raise ValueError(
            f"{text!r} is a condition, expected a number; remove comparisons."
        )
    if condition and not is_condition:
        raise ValueError(
            f"{text!r} is a number, expected a condition, such as x < 1e-6."
        )
    return Expression(text.strip(), is_condition, tuple(names), tree)


def parse_named(text: str, *, condition: bool = False) -> dict[str, Expression]:
    """Reads formulas with names: `U: load/modulus, S: load` or `clamp: x < 1e-6`.

    They are separated by commas or semicolons. The last colon ends a name, because
    formulas contain none. A name with a comma or a semicolon is quoted.

    Args:
      text: value of a flag; may be empty.
      condition: whether conditions are expected instead of numbers.

    Returns:
      The formulas by name, in the order of the text.

    Raises:
      ValueError: if a part has no name or is not a formula, or a name is repeated.
    """
    expressions: dict[str, Expression] = {}
    for part in _parts(text):
        colon = _hidden(part).rfind(":")
        name = part[: max(colon, 0)].strip()
        name = name[1:-1] if _QUOTED.fullmatch(name) else name
        if not name:
            example = "clamp: x < 1e-6" if condition else "U: load/modulus"
            raise ValueError(
                f"{part.strip()!r} has no name followed by a colon; write {example}."
            )
        if name in expressions:
            raise ValueError(f"{text!r} has {name!r} twice; name it once.")
        try:
            expressions[name] = parse(part[colon + 1 :], condition=condition)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return expressions


def _parts(text: str) -> list[str]:
    """Divides at commas and semicolons outside of parentheses and quotes."""
    depth, start, parts = 0, 0, []
    for place, c in enumerate(_hidden(text)):
        depth += (c == "(") - (c == ")")
        if c == ";" or (c == "," and depth <= 0):
            parts.append(text[start:place])
            depth, start = 0, place + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _hidden(text: str) -> str:
    """The text with spaces in place of what is in quotes."""
    return _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)


class _Source:
    """A text as Python's grammar takes it: on one line, `**` for `^`."""

    def __init__(self, text: str):
        """Translates; raises ValueError for signs that Python would understand."""
        self._text, self._source = text, ""
        self._places: list[int] = []  # in the text, of each character of the source
        hidden = _hidden(text)
        for place, c in enumerate(text):
            if hidden[place] in _REFUSED:
                instead = _REFUSED[c]
                raise self._wrong(place, f"{c!r} is not allowed{instead}")
            if self._source or not c.isspace():
                c = " " if c.isspace() else "**" if hidden[place] == "^" else c
                self._source += c
                self._places += [place] * len(c)

    def tree(self) -> ast.expr:
        """The syntax tree; raises ValueError if Python's grammar has none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self._source, mode="eval").body
        except SyntaxError as error:
            place = (error.offset or 0) - 1  # -1 at the end, for some mistakes
            place = len(self._places) if place < 0 else place
            raise self._wrong(place, error.msg) from None
        except ValueError as error:  # null bytes
            raise self._wrong(0, str(error)) from None

    def kind(self, node: ast.expr, names: dict[str, None]) -> bool:
        """Collects the names of a part, and says whether it is a condition.

        Raises:
          ValueError: if it is nothing that is allowed.
        """
        match node:
            case ast.Constant(value=str(name)) if name:
                names[name] = None
            case ast.Constant(value=bool()):
                raise self._of(node, f"{node.value} is not allowed")
            case ast.Constant(value=int() | float() as number):
                if not _is_finite(number):
                    raise self._of(node, "a number is too large")
            case ast.Name():
                name = ast.get_source_segment(self._source, node) or node.id
                if name not in _CONSTANTS:
                    names[name] = None
                node.id = name  # as typed: Python normalizes letters
            case ast.UnaryOp(op=ast.Not()):
                self._all_of([node.operand], names, condition=True)
                return True
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                self._all_of([node.operand], names)
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                self._all_of([node.left, node.right], names)
            case ast.Compare(ops=ops) if all(type(op) in _COMPARISONS for op in ops):
                self._all_of([node.left, *node.comparators], names)
                return True
            case ast.BoolOp():
                self._all_of(node.values, names, condition=True)
                return True
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                if name not in FUNCTIONS:
                    raise self._of(
                        node,
                        f"the function {name!r} is unknown; available: "
                        f"{', '.join(FUNCTIONS)}",
                    )
                if len(node.args) != 1 and not (name in _OF_MANY and node.args):
                    raise self._of(node, f"{name} has {len(node.args)} arguments")
                self._all_of(node.args, names)
            case _:
                raise self._of(node, f"this is not supported; use only {_ALLOWED}")
        return False

    def _all_of(
        self, nodes: list[ast.expr], names: dict[str, None], *, condition: bool = False
    ) -> None:
        for node in nodes:
            if self.kind(node, names) != condition:
                kinds = ["a number", "a condition"]
                raise self._of(
                    node,
                    f"{kinds[not condition]}, but {kinds[condition]} is expected",
                )

    def _of(self, node: ast.expr, what: str) -> ValueError:
        line = self._source.encode()
        return self._wrong(len(line[: node.col_offset].decode()), what)

    def _wrong(self, place: int, what: str) -> ValueError:
        place = [*self._places, len(self._text)][min(place, len(self._places))]
        return ValueError(
            f"{self._text.strip()!r}, character {place + 1}, "
            f"at {self._text[place : place + 20].strip() or 'its end'!r}: {what}."
        )


def _too_deep(text: str) -> ValueError:
    return ValueError(
        f"The formula {text[:40]!r}... has too many parentheses or signs."
    )


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number of many digits
        return False


def _computed(node: ast.expr, values: Mapping[str, Any], text: str | None) -> Any:
    """Computes a part of a checked formula; raises ValueError if it is not finite.

    Without a text, JAX computes it and nothing is checked.
    """
    xp: Any = jnp if text is None else np

    def of(part: ast.expr) -> Any:
        return _computed(part, values, text)

    match node:
        case ast.Constant(value=str(name)) | ast.Name(id=name):
            return xp.asarray(values[name])
        case ast.Constant(value=int() | float() as number):
            return xp.asarray(float(number))
        case ast.UnaryOp(op=ast.Not()):
            return ~of(node.operand)
        case ast.UnaryOp():
            return _SIGNS[type(node.op)](of(node.operand))
        case ast.BoolOp():
            join = xp.logical_and if isinstance(node.op, ast.And) else xp.logical_or
            return functools.reduce(join, map(of, node.values))
        case ast.Compare():
            sides = [of(part) for part in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
            both = (_COMPARISONS[type(op)](a, b) for op, a, b in pairs)
            return functools.reduce(xp.logical_and, both)
        case ast.BinOp():
            right = of(node.right)
            if text and isinstance(node.op, ast.Div) and not np.all(right):
                raise ValueError(
                    f"{text!r} divides by zero: {ast.unparse(node.right)} is 0"
                    + _share(right == 0)
                )
            result = _ARITHMETIC[type(node.op)](of(node.left), right)
        case ast.Call(func=ast.Name(id=name)):
            function, parts = getattr(xp, FUNCTIONS[name]), map(of, node.args)
            many = name in _OF_MANY
            result = functools.reduce(function, parts) if many else function(*parts)
        case _:
            raise AssertionError(ast.dump(node))
    return _finite(result, node, text) if text else result


def _finite(result: np.ndarray, node: ast.expr, text: str) -> np.ndarray:
    wrong = ~np.isfinite(result)
    if np.any(wrong):
        raise ValueError(
            f"{text!r}: {ast.unparse(node)} is not a finite number" + _share(wrong)
        )
    return np.asarray(result)


def _share(wrong: np.ndarray) -> str:
    if np.ndim(wrong) == 0:
        return "."
    return f" for {np.sum(wrong)} of {np.size(wrong)} values."
