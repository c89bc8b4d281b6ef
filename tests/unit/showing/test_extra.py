"""What a loop adds of its own, in a line."""

from __future__ import annotations

import pytest

from workbench.showing.text import extra_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"type": "function", "function": {"name": n}} for n in ("add", "look")], "add, look"),
        ([{"type": "function"}], '[{"type": "function"}]'),
        ([], "[]"),
        ("why", "why"),
        (3, "3"),
    ],
)
def test_tools_are_told_by_their_names(value, text):
    assert extra_text(value) == text
