"""Arithmetic, and nothing else."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

MAX_EXPRESSION = 200
"""Characters; arithmetic that a task needs is far shorter."""


def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: Numbers with + - * / // % and parentheses, such as "12 + 7".
    """
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"the expression has more than {MAX_EXPRESSION} characters")
    value = _evaluate(ast.parse(expression.strip(), mode="eval").body)
    return str(int(value) if float(value).is_integer() else value)


def _evaluate(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left), _evaluate(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(operand))
    raise ValueError(f"only numbers and + - * / // % ( ) are allowed, not {ast.unparse(node)!r}")
