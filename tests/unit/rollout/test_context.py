"""Prompts that are too long are rejected or cut, and the row says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ConfigError, RolloutError
from workbench.rollout.context import ContextRules


def test_a_prompt_that_fits_is_left_alone():
    assert ContextRules(10).fit(range(9)) == (list(range(9)), "")
    assert ContextRules().fit(range(99)) == (list(range(99)), ""), "nobody knows a limit"


def test_a_prompt_that_is_too_long_is_rejected_with_both_numbers():
    with pytest.raises(RolloutError, match="the prompt has 10 tokens, 9 are allowed"):
        ContextRules(10).fit(range(10))
    with pytest.raises(RolloutError, match="4 are allowed"):
        ContextRules(10, max_prompt_tokens=4).fit(range(5))


def test_or_its_end_is_kept_and_that_is_noted():
    rules = ContextRules(10, max_prompt_tokens=4, overlong="cut-left")
    assert rules.fit(range(6)) == ([2, 3, 4, 5], "the prompt was cut on the left, from 6 to 4")


def test_without_a_bound_of_ones_own_half_of_the_context_is_left_for_the_answer():
    kept, note = ContextRules(10, overlong="cut-left").fit(range(12))
    assert (kept, bool(note)) == ([7, 8, 9, 10, 11], True)


def test_room_is_what_is_left_of_the_context():
    assert (ContextRules(10).room(4), ContextRules(10).room(10)) == (6, 0)
    assert ContextRules(max_prompt_tokens=3).room(4) is None


@given(
    st.none() | st.integers(2, 40), st.none() | st.integers(1, 40),
    st.sampled_from(("reject", "cut-left")), st.integers(0, 60),
)  # fmt: skip
def test_whatever_is_sent_fits_and_is_the_prompts_end(context, longest, overlong, size):
    rules = ContextRules(context, longest, overlong)
    try:
        kept, note = rules.fit(range(size))
    except RolloutError:
        assert overlong == "reject"
        return
    assert kept == list(range(size))[size - len(kept) :]
    assert bool(note) == (len(kept) < size)
    assert len(kept) < (context or 99)
    assert len(kept) <= (longest or 99)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"overlong": "truncate"}, "overlong: 'truncate' .*reject, cut-left"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens: 0"),
        ({"max_tokens": "many"}, "max_tokens: 'many'"),
    ],
)
def test_rules_that_are_none_are_refused(options, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ContextRules(**options)
