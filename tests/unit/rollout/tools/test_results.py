"""What a tool returned or raised, as the model reads it."""

from __future__ import annotations

import pickle
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import DeadlineError
from workbench.rollout.tools import ToolError
from workbench.rollout.tools.results import answer_to, as_text, shortened


class Colour(StrEnum):
    RED = "red"


class Silent(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (3, "3"),
        (True, "true"),
        (None, "null"),
        ({"ä": [1, None]}, '{"ä": [1, null]}'),
        ({1}, '"{1}"'),
        (Colour.RED, "red"),
        ("half \ud83d of a pair", "half ? of a pair"),
        (["\ud83d"], '["?"]'),
    ],
)
def test_results_are_text_or_json(value, read):
    assert as_text(value) == read


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (ValueError("no"), "error: ValueError: no"),
        (ToolError("In my words."), "In my words."),
        (DeadlineError("too late"), "error: too late"),
        (Silent(), "error: Silent: (it cannot be put in words)"),
        (KeyError("\ud83d"), "error: KeyError: '\\ud83d'"),
        (OSError("\ud83d"), "error: OSError: ?"),
    ],
)
def test_errors_are_answers(error, read):
    assert answer_to(error) == read


def test_a_tools_own_error_survives_pickling():
    assert str(pickle.loads(pickle.dumps(ToolError("no")))) == "no"


@given(
    text=st.text(max_size=60),
    limit=st.integers(1, 40),
    cut=st.sampled_from(["end", "middle", "start"]),
)
def test_what_is_left_of_a_long_text_is_its_own(text, limit, cut):
    short, left_out = shortened(text, limit, cut)
    assert left_out == max(0, len(text) - limit)
    if not left_out:
        assert short == text
        return
    mark = f"[{left_out} characters left out]"
    before = {"end": limit, "start": 0, "middle": (limit + 1) // 2}[cut]
    assert short == text[:before] + mark + text[len(text) - (limit - before) :]
    assert len(short) == limit + len(mark)
