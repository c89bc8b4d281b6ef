"""The live side of a façade's object, for its own repr. Imports no front end before it has to."""

from __future__ import annotations

import importlib.util
import sys
import weakref
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from widgets.live_view import LiveView

_shown: weakref.WeakValueDictionary[tuple[object, ...], LiveView] = weakref.WeakValueDictionary()
"""What is displayed again is the same widget, seen twice. Each keeps what it is known by alive."""


def live_bundle(kind: str, subject: Any) -> dict[str, Any] | None:
    """What a repr adds to its own text and HTML; None where no live front end can be.

    Args:
        kind: ``pool``, ``routing``, ``replica``, ``rollout``, ``stream`` or ``trajectory``.
        subject: what is displayed. All but a trajectory have a ``feed``; a replica has its
            ``replica_id``, too.

    Raises:
        ConfigError: another kind.
    """
    if kind not in _MAKERS:
        raise ConfigError("kind", f"{kind!r}", allowed=list(_MAKERS))
    if not _is_in_kernel() or importlib.util.find_spec("anywidget") is None:
        return None
    from widgets.live_view import VIEW_TYPE

    source = getattr(subject, "feed", subject)
    key = (kind, id(source), *(getattr(subject, name, "") for name in ("replica_id", "name")))
    view = _shown.get(key)
    if view is None or view.comm is None:
        view = _shown[key] = _MAKERS[kind](subject)
    data, _ = view._repr_mimebundle_(include=[VIEW_TYPE])
    return data


def _is_in_kernel() -> bool:
    if "ipykernel" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _pool(subject: Any) -> LiveView:
    from widgets.replica_load import ReplicaLoad

    return ReplicaLoad(subject)


def _routing(subject: Any) -> LiveView:
    from widgets.session_stickiness import SessionStickiness

    return SessionStickiness(subject)


def _replica(subject: Any) -> LiveView:
    from widgets.replica_load import ReplicaLoad

    return ReplicaLoad(subject, replicas=[subject.replica_id])


def _rollout(subject: Any) -> LiveView:
    from widgets.rollout_progress import RolloutProgress

    return RolloutProgress(subject)


def _stream(subject: Any) -> LiveView:
    from widgets.staleness_view import StalenessView

    return StalenessView(subject)


def _trajectory(subject: Any) -> LiveView:
    from widgets.trajectory_view import TrajectoryView

    return TrajectoryView(subject)


_MAKERS: dict[str, Callable[[Any], LiveView]] = {
    "pool": _pool,
    "routing": _routing,
    "replica": _replica,
    "rollout": _rollout,
    "stream": _stream,
    "trajectory": _trajectory,
}
