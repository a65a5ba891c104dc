"""A calculator that cannot be made to hang: arithmetic is read by `ast`, bounded, and never evaluated by Python."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

__all__ = ["calculator"]

_Number: TypeAlias = int | float
_T = TypeVar("_T")

_LONGEST = 1000
_MOST_BITS = 10_000
_MOST_DIGITS = 300
# Strings and the like: Python would warn of some of them on the terminal, as of a number that runs into a name.
_FOREIGN = re.compile(r"[^\w\s.,+*/%()^-]")
_GLUED = re.compile(r"(?<![\w.])[\d.][\d_.]*(?![eE][+-]?\d)[A-Za-z_]")


def calculator(expression: str) -> int | float:
    """Work out an arithmetic expression, such as (3 + 4) * sqrt(2) / 10 ** 3.

    It knows + - * / // % **, abs, round, floor, ceil, sqrt, exp, log, log2, log10, sin, cos, tan, asin, acos, atan,
    min, max, factorial, pi and e.

    Args:
        expression: The expression. Angles are in radians; log(x) is natural, log(x, 10) has another base.

    Raises:
        ValueError: It is no arithmetic, or its result is no real number of a sensible size.
    """
    if len(expression) > _LONGEST:
        raise ValueError(f"the expression has {len(expression)} characters, and {_LONGEST} are the most")
    if foreign := _FOREIGN.search(expression):
        raise ValueError(f"{foreign[0]!r} is no part of an arithmetic expression")
    if glued := _GLUED.search(expression):
        raise ValueError(f"{glued[0]!r} is no number; write 2 * pi for products, and whole numbers in decimal")
    source = " ".join(expression.split())
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"this is no arithmetic expression: {error.msg}") from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise ValueError("the expression cannot be read; write a shorter one") from error
    return _evaluate(tree.body, source)


def _evaluate(tree: ast.expr, source: str) -> _Number:
    """Return the value of a tree; a loop with a stack of its own, since long sums are deep trees."""
    pending: list[tuple[ast.expr, bool]] = [(tree, False)]
    values: list[_Number] = []
    while pending:
        node, ready = pending.pop()
        operands = _operands(node)
        if operands and not ready:
            pending += [(node, True), *((operand, False) for operand in reversed(operands))]
            continue
        first = len(values) - len(operands)
        try:
            values[first:] = [_checked(_apply(node, values[first:]))]
        except ZeroDivisionError:
            raise ValueError("this divides by zero") from None
        except OverflowError:
            raise ValueError("a number on the way is too large") from None
        except TypeError:
            shown = (ast.get_source_segment(source, node) or "")[:80]
            hint = "write ** for powers, and numbers without commas"
            raise ValueError(f"this cannot be worked out: {shown}; {hint}") from None
    return values[0]


def _operands(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp():
            return [node.left, node.right]
        case ast.UnaryOp():
            return [node.operand]
        case ast.Call():
            return node.args
    return []


def _apply(node: ast.expr, values: list[_Number]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return _known(name, _CONSTANTS)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return _known(name, _FUNCTIONS)(*values)
        case ast.UnaryOp() if type(node.op) in _UNARY:
            return _UNARY[type(node.op)](*values)
        case ast.BinOp() if type(node.op) in _BINARY:
            return _BINARY[type(node.op)](*values)
    raise TypeError


def _known(name: str, kind: Mapping[str, _T]) -> _T:
    if name in kind:
        return kind[name]
    if name in _FUNCTIONS:
        raise ValueError(f"{name} is a function: write {name}(...)")
    if name in _CONSTANTS:
        raise ValueError(f"{name} is a number: write {name} * (...)")
    raise ValueError(f"{name!r} is not known; there are {', '.join((*_FUNCTIONS, *_CONSTANTS))}")


def _checked(value: Any) -> _Number:
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise ValueError(f"a number on the way has more than {_MOST_BITS} bits")
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(
        "the result is no real number" if isinstance(value, complex) else "a number on the way is too large"
    )


def _power(base: _Number, exponent: _Number) -> Any:
    # Known before it is worked out: Python would take hours, and hold its lock.
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and exponent > 0 and exponent * (int(abs(base)).bit_length() - 1) > _MOST_BITS:
        raise OverflowError
    return base**exponent


def _factorial(value: _Number) -> int:
    if not isinstance(value, int) or not 0 <= value <= 1000:
        raise ValueError("factorial takes a whole number from 0 to 1000")
    return math.factorial(value)


def _round(value: _Number, digits: _Number | None = None) -> _Number:
    if digits is not None and not (isinstance(digits, int) and abs(digits) <= _MOST_DIGITS):
        raise ValueError(f"round takes a whole number of digits, at most {_MOST_DIGITS}")
    return round(value, digits)


def _real(function: Callable[..., float]) -> Callable[..., float]:
    """Return a function of `math` that says by its name where it has no value."""

    def checked(*values: _Number) -> float:
        try:
            return function(*values)
        except ValueError:
            shown = ", ".join(f"{value:.6g}" for value in values)
            raise ValueError(f"{function.__name__}({shown}) is no real number") from None

    return checked


_CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "round": _round,
    "floor": math.floor,
    "ceil": math.ceil,
    **{
        function.__name__: _real(function)
        for function in (
            math.sqrt,
            math.exp,
            math.log,
            math.log2,
            math.log10,
            math.sin,
            math.cos,
            math.tan,
            math.asin,
            math.acos,
            math.atan,
        )
    },
    "min": lambda first, *others: min((first, *others)),
    "max": lambda first, *others: max((first, *others)),
    "factorial": _factorial,
}
_UNARY: Mapping[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
