"""The calculator does arithmetic, and nothing else."""

from __future__ import annotations

import pytest

from workbench.rollout.tools import MAX_EXPRESSION, calculator


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12 + 7", "19"),
        (" 2*(3-5) ", "-4"),
        ("7/2", "3.5"),
        ("6/2", "3"),
        ("7//2", "3"),
        ("-7 % 3", "2"),
        ("+1.50", "1.5"),
        ("--2", "2"),
    ],
)
def test_the_calculator_calculates(expression, value):
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "", "1 +", "a", "2**9", "__import__('os')", "f(1)", "(1).real", "1j", "'a'*3", "[1]",
        "1 < 2", "1/0", "(" * 150 + "1", "1" * (MAX_EXPRESSION + 1), "x := 1", "1; 2",
    ],
)  # fmt: skip
def test_the_calculator_calculates_nothing_else(expression):
    with pytest.raises((ValueError, SyntaxError, ArithmeticError, MemoryError)):
        calculator(expression)
