"""How a stream of rollouts bounds what it makes and what it hands out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

from workbench.errors import ConfigError
from workbench.weights import PauseMode

WhenTooOld = Literal["wait", "drop", "cancel"]
"""What becomes of groups that take longer than the bound allows. ``wait``: a batch waits for those
that the next version would make too old, so that nothing is lost. ``drop``: they play on, are
dropped when they end, and their tasks are played again. ``cancel``: they are stopped as soon as a
new version makes them too old, and their tasks are played again."""

OnFailedPublish = Literal["stop", "go_on"]

VERL_MAX_CONCURRENT = 16
"""Groups in flight per replica that verl's ``concurrent_samples_per_replica`` stands at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """Bounds of a stream, in the field's words. A *sample* there is a group here.

    Two rules hold together. At admission: groups that are in flight or queued, and those handed
    out since the learner's last version, are never more than :attr:`window`. At consumption: no
    group is handed out whose oldest token is more than ``max_staleness`` versions old.

    Raises:
        ConfigError: a number that is none, or numbers that cannot work together; says how they
            have to stand to each other.
    """

    required_samples: int = 8
    """Groups in one batch for the learner."""
    trigger_parameter_sync_step: int = 1
    """Batches that the learner takes between two versions."""
    max_staleness: int | None = 1
    """The learner's version minus the oldest version in a group, at most, when it is handed out; 0
    is the synchronous order. None: no bound."""
    staleness_threshold: float | None = None
    """Share of a version's groups that may exist beyond them. None: as ``max_staleness``."""
    when_too_old: WhenTooOld = "wait"
    max_voids: int = 3
    """Times that a task's group may be too old; then it is given up, and told."""
    max_concurrent: int | None = None
    """Groups in flight, at most. None: by the load of the pool."""
    max_failures: int = 3
    """Groups in a row of which every rollout failed with the same kind of error: the stream stops
    with it."""
    partial_rollout: bool = True
    """Whether a rollout may go on under new weights. If not, a publish waits for all of them."""
    update_mode: PauseMode = "keep"
    """What becomes of requests in the engines while weights are changed."""
    on_failed_publish: OnFailedPublish = "stop"
    """Whether a stream goes on with the old weights where no replica took the new ones."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        for name, known in (
            ("update_mode", PauseMode),
            ("when_too_old", WhenTooOld),
            ("on_failed_publish", OnFailedPublish),
        ):
            if getattr(self, name) not in get_args(known):
                raise ConfigError(name, f"{getattr(self, name)!r}", allowed=list(get_args(known)))
        threshold, bound = self.staleness_threshold, self.max_staleness
        if threshold is not None and bound is not None and threshold > bound:
            problem = f"{threshold:g} makes groups that are too old to be handed out"
            allowed = f"staleness_threshold <= max_staleness = {bound}"
            raise ConfigError("staleness_threshold", problem, allowed=allowed)

    @property
    def per_version(self) -> int:
        """Groups that the learner takes of one version."""
        return self.required_samples * self.trigger_parameter_sync_step

    @property
    def window(self) -> int:
        """Groups that may exist or be taken, counted from the learner's last version."""
        share = self.staleness_threshold
        if share is None:
            share = 1 if self.max_staleness is None else self.max_staleness
        return int(self.per_version * (1 + share))

    @classmethod
    def verl(
        cls,
        *,
        ppo_mini_batch_size: int,
        require_batches: int = 1,
        staleness_threshold: float = 0.1,
        trigger_parameter_sync_step: int = 4,
        replicas: int,
        concurrent_samples_per_replica: int = VERL_MAX_CONCURRENT,
        partial_rollout: bool = True,
    ) -> Self:
        """verl's formulas: bounds how much is made, and drops nothing for its age."""
        made = cls(
            required_samples=ppo_mini_batch_size * require_batches,
            trigger_parameter_sync_step=trigger_parameter_sync_step,
            max_staleness=None,
            staleness_threshold=staleness_threshold,
            partial_rollout=partial_rollout,
            update_mode="abort",
        )
        most = min(replicas * concurrent_samples_per_replica, made.window)
        return cls(
            **{name: getattr(made, name) for name in cls.__slots__} | {"max_concurrent": most}
        )


def _check_numbers(rules: StreamRules) -> None:
    least = {
        "required_samples": 1,
        "trigger_parameter_sync_step": 1,
        "max_staleness": 0,
        "max_voids": 1,
        "max_concurrent": 1,
        "max_failures": 1,
    }
    for name, lowest in least.items():
        value = getattr(rules, name)
        is_open = value is None and name in {"max_staleness", "max_concurrent"}
        if not is_open and (type(value) is not int or value < lowest):
            or_none = ", or None" if name in {"max_staleness", "max_concurrent"} else ""
            raise ConfigError(name, f"{value!r}", allowed=f"a whole number from {lowest}{or_none}")
    share = rules.staleness_threshold
    is_share = isinstance(share, int | float) and not isinstance(share, bool)
    if share is not None and not (is_share and 0 <= share < float("inf")):
        raise ConfigError("staleness_threshold", f"{share!r}", allowed="a number from 0, or None")
    if not isinstance(rules.partial_rollout, bool):
        raise ConfigError("partial_rollout", f"{rules.partial_rollout!r}", allowed=[True, False])
