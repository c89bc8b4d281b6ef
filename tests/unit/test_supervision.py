"""When a replica is replaced, how soon, and when it is given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.supervision import MAX_BACKOFF_S, RestartBudget, SupervisionConfig


def budget(**rules):
    return RestartBudget(SupervisionConfig(**rules))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("hang_s", value) for value in (0, 0.9, -1, True, "30", None, float("nan"))),
        *(("backoff_s", value) for value in (-0.1, float("inf"), False)),
        *(("healthy_s", value) for value in (-1, "x")),
        *(("max_restarts", value) for value in (-1, 1.0, True, None)),
    ],
)
def test_a_wrong_rule_is_refused_by_its_field(field, value):
    with pytest.raises(ConfigError) as refused:
        SupervisionConfig(**{field: value})
    assert refused.value.field == field
    assert refused.value.allowed


def test_a_rule_may_be_at_the_edge_of_what_is_allowed():
    rules = SupervisionConfig(hang_s=1, backoff_s=0, healthy_s=0, max_restarts=0)
    assert RestartBudget(rules).failed() is None, "never replaced"


def test_the_first_replacement_comes_at_once_and_each_further_one_after_twice_the_pause():
    failing = budget(max_restarts=9, backoff_s=2.0)
    pauses = [failing.failed() for _ in range(10)]
    assert pauses == [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_BACKOFF_S, MAX_BACKOFF_S, 60.0, None]
    assert failing.used == 9


def test_who_never_gives_up_goes_on_at_the_longest_pause():
    failing = budget(max_restarts=10_000, backoff_s=1e-3)
    assert [failing.failed() for _ in range(10_000)][-1] == MAX_BACKOFF_S


def test_failures_are_forgotten_after_running_well_for_long_enough_and_not_before():
    failing = budget(max_restarts=1, healthy_s=10.0)
    assert failing.failed() == 0.0
    failing.well(100.0)
    failing.well(109.9)
    assert failing.failed() is None
    failing.well(200.0)  # what was well before the failure counts for nothing
    failing.well(209.9)
    assert failing.used == 1
    failing.well(210.0)
    assert (failing.used, failing.failed()) == (0, 0.0)


@given(
    most=st.integers(0, 4),
    story=st.lists(st.one_of(st.none(), st.floats(0.0, 8.0)), max_size=40),
)
def test_no_replica_is_replaced_more_often_in_a_row_than_allowed(most, story):
    """``story``: a failure, or so many more seconds of running well."""
    failing, now_s, well_s, replaced = budget(max_restarts=most, healthy_s=10.0), 0.0, 0.0, 0
    for well_for_s in story:
        if well_for_s is not None:
            failing.well(now_s)
            now_s += well_for_s
            well_s += well_for_s
            failing.well(now_s)
            replaced = 0 if failing.used == 0 else replaced
            assert failing.used == 0 or well_s < 10.0 + 1e-6
            continue
        pause = failing.failed()
        assert (pause is None) == (replaced == most)
        replaced += pause is not None
        well_s = 0.0
