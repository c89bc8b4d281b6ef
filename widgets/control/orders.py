"""What a person may ask of a pool, read from what a browser sent. Pure.

A browser's words are not trusted: whatever makes no sense is refused before a pool sees it, and so
is what interrupts work and was not confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from widgets.drawing import count
from widgets.pictures.text import prose
from workbench.errors import ConfigError
from workbench.weights import check_mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from widgets.sources import PoolVerbs
    from workbench.weights import PauseMode, WeightUpdate

MOST_REPLICAS = 10_000
LONGEST_TEXT = 4096
"""Characters of a path; ids are shorter."""
POOL = ""
"""Stands for the pool itself where ids of replicas stand."""


class Verb(StrEnum):
    """What can be asked for."""

    SCALE = "scale"
    DRAIN = "drain"
    READMIT = "readmit"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"
    PUBLISH = "publish"


OF_ONE = frozenset({Verb.DRAIN, Verb.READMIT, Verb.RESTART})
OF_ALL = frozenset({Verb.SCALE, Verb.PUBLISH})


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do."""

    verb: Verb
    replica_id: str = POOL
    replicas: int = 0
    """To scale to."""
    drain: bool = False
    """To restart once nothing runs any more."""
    mode: PauseMode = "keep"
    source: str = ""
    """A checkpoint's directory."""
    version: int | None = None
    recompute: bool = False
    confirmed: bool = False

    def __str__(self) -> str:
        whom = prose(self.replica_id, 60) or "all replicas"
        if self.verb is Verb.SCALE:
            return f"scale to {count(self.replicas, 'replica')}"
        if self.verb is Verb.PUBLISH:
            version = "" if self.version is None else f" as version {self.version}"
            return f"publish {prose(self.source, 80)}{version} ({self.mode})"
        if self.verb is Verb.READMIT:
            return f"take {whom} back"
        if self.verb is Verb.RESTART and self.drain:
            return f"drain and restart {whom}"
        mode = f" ({self.mode})" if self.verb is Verb.PAUSE else ""
        return f"{self.verb} {whom}{mode}"


def order_of(message: Mapping[str, Any]) -> Order:
    """What a browser asked for.

    Raises:
        ConfigError: it makes no sense; names the field.
    """
    verb = _verb(message.get("verb"))
    replica_id = _text(message, "replica_id")
    if verb in OF_ONE and not replica_id:
        raise ConfigError("replica_id", f"{verb} is for one replica", allowed="its id")
    if verb in OF_ALL and replica_id:
        raise ConfigError("replica_id", f"{verb} is for the whole pool", allowed="none")
    source = _text(message, "source").strip()
    if verb is Verb.PUBLISH and not source:
        raise ConfigError("source", "is missing", allowed="a checkpoint's directory")
    return Order(
        verb,
        replica_id,
        replicas=_replicas(message.get("replicas")) if verb is Verb.SCALE else 0,
        drain=message.get("drain") is True,
        mode=check_mode(message.get("mode", "keep")),
        source=source,
        version=_version(message.get("version")),
        recompute=message.get("recompute") is True,
        confirmed=message.get("confirmed") is True,
    )


def _verb(given: Any) -> Verb:
    try:
        return Verb(given)
    except ValueError:
        raise ConfigError("verb", f"{given!r:.80}", allowed=[str(verb) for verb in Verb]) from None


def _text(message: Mapping[str, Any], field: str) -> str:
    given = message.get(field, "")
    if not isinstance(given, str) or len(given) > LONGEST_TEXT:
        allowed = f"text of at most {LONGEST_TEXT:,} characters"
        raise ConfigError(field, f"{given!r:.80}", allowed=allowed)
    return given


def _replicas(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_REPLICAS:
        allowed = f"a whole number from 1 to {MOST_REPLICAS:,}"
        raise ConfigError("replicas", f"{given!r:.80}", allowed=allowed)
    return given


def _version(given: Any) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ConfigError("version", f"{given!r:.80}", allowed="a whole number from 0, or none")
    return given


def interrupts(order: Order, present: int | None) -> bool:
    """Whether it interrupts work, so that somebody has to confirm it.

    Args:
        order: what is asked for.
        present: replicas that there are; None where that is not known.
    """
    if order.verb is Verb.SCALE:
        return present is None or order.replicas < present
    if order.verb is Verb.PAUSE:
        return not order.replica_id
    return order.verb in {Verb.RESTART, Verb.PUBLISH}


def touches(order: Order, replica_ids: frozenset[str]) -> frozenset[str]:
    """The replicas that it is about; :data:`POOL` among them where it is about the pool.

    Two orders that touch the same are not carried out at once. Adding replicas leaves those alone
    that there are.
    """
    if order.replica_id:
        return frozenset({order.replica_id})
    if order.verb is Verb.SCALE and order.replicas >= len(replica_ids):
        return frozenset({POOL})
    return replica_ids | {POOL}


def carry_out(verbs: PoolVerbs, order: Order) -> str:
    """Do it, which blocks.

    Returns:
        What came of it, in words.

    Raises:
        WorkbenchError: as the verb does.
    """
    one = order.replica_id or None
    match order.verb:
        case Verb.SCALE:
            return f"done, {count(len(verbs.scale(order.replicas)), 'replica')} now"
        case Verb.DRAIN:
            verbs.drain(order.replica_id)
        case Verb.READMIT:
            verbs.readmit(order.replica_id)
        case Verb.RESTART:
            verbs.restart(order.replica_id, drain=order.drain)
        case Verb.PAUSE:
            verbs.pause(one, mode=order.mode)
        case Verb.RESUME:
            verbs.resume(one)
        case Verb.PUBLISH:
            return published(
                verbs.update_weights(
                    order.source,
                    version=order.version,
                    mode=order.mode,
                    recompute=order.recompute,
                )
            )
    return "done"


def published(update: WeightUpdate) -> str:
    """What came of new weights, in words."""
    took = len(update.replicas) - len(update.replaced)
    words = f"version {update.version} on {count(took, 'replica')}"
    if took:
        words += f", which stood still for {update.stopped_s:.1f} s at most"
    if update.replaced:
        errors = {one.replica_id: one.error for one in update.replicas if one.error}
        listed = "; ".join(f"{name}: {prose(errors[name])}" for name in update.replaced)
        words += f"; being replaced: {listed}"
    return words
