"""Which groups are worth a learner's time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.stream.groups import Group


def group_filter(asked: str | Callable[[Group], bool] | None) -> Callable[[Group], bool]:
    """What was asked for, as a function.

    Raises:
        ConfigError: there is no such filter.
    """
    if asked is None:
        return lambda _: True
    if asked == "varied":
        return varied
    if callable(asked):
        return asked
    raise ConfigError("filter", f"{asked!r}", allowed="'varied', a function of a group, or None")


def check_filter(asked: str | Callable[[Group], bool] | None, n: int, *, rewarded: bool) -> None:
    """Refuse a filter that no group could pass: the stream would play for ever and give nothing.

    Args:
        asked: as for :func:`group_filter`.
        n: rollouts of a group.
        rewarded: whether rollouts may have rewards.

    Raises:
        ConfigError: says what the filter needs.
    """
    if asked != "varied":
        return
    if n < 2:
        allowed = "n >= 2 with filter='varied', which compares the rewards of a group"
        raise ConfigError("n", f"{n}", allowed=allowed)
    if not rewarded:
        problem = "'varied' compares rewards, and there are none"
        raise ConfigError("filter", problem, allowed="reward= beside it, or another filter")


def varied(group: Group) -> bool:
    """Whether its rewards differ: a learner that compares them gets nothing from others."""
    rewards = {row.reward for row in group.trajectories if row.reward is not None}
    return len(rewards) > 1
