from __future__ import annotations

import pytest

from tests.unit.rollout.playing import spec
from workbench.errors import ConfigError
from workbench.stream.filters import check_filter, group_filter
from workbench.stream.groups import Group, GroupHeader, Ticket
from workbench.trajectory import RolloutStatus, Trajectory


def group(*rewards):
    rows = [
        Trajectory(
            f"task-0/{i}", "task-0", i, "test", spec().task, (), (), (), (),
            RolloutStatus.DONE, reward,
        )
        for i, reward in enumerate(rewards)
    ]  # fmt: skip
    return Group(GroupHeader.of(Ticket(0, 1, 0), rows), tuple(rows))


def test_varied_groups_are_those_whose_rewards_differ():
    keeps = group_filter("varied")
    assert keeps(group(0.0, 1.0, 1.0))
    assert not keeps(group(1.0, 1.0))
    assert not keeps(group(1.0, None)), "what has no reward is not compared"


def test_without_a_filter_all_are_kept_and_a_function_is_asked():
    assert group_filter(None)(group(1.0))
    assert not group_filter(lambda asked: asked.header.mean_reward > 0.5)(group(0.0, 0.5))


def test_an_unknown_filter_is_refused_with_what_there_is():
    with pytest.raises(ConfigError, match="'varied', a function"):
        group_filter("zero_variance")


def test_a_filter_that_no_group_could_pass_is_refused():
    with pytest.raises(ConfigError, match=r"^n: 1 .*n >= 2 with filter='varied'"):
        check_filter("varied", 1, rewarded=True)
    with pytest.raises(ConfigError, match=r"^filter: .*there are none .*reward="):
        check_filter("varied", 8, rewarded=False)
    check_filter("varied", 2, rewarded=True)
    for other in (None, lambda _: True):
        check_filter(other, 1, rewarded=False)
