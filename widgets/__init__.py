"""For somebody looking: a run's tables as pictures, and a run as one HTML file.

Names are loaded when they are first used, so that ``import widgets`` costs next to nothing.
Import names, not the package: people write ``import ipywidgets as widgets``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widgets.figures import Still, length_figure, load_figure, replica_figure, reward_figure
    from widgets.kv_cache_usage import KVCacheUsage
    from widgets.pool_control import PoolControl
    from widgets.replica_load import ReplicaLoad
    from widgets.report import write_report
    from widgets.rollout_progress import RolloutProgress
    from widgets.session_stickiness import SessionStickiness
    from widgets.staleness_view import StalenessView
    from widgets.study import policy_figure
    from widgets.trajectory_view import TrajectoryView

_HOMES = {
    "KVCacheUsage": "widgets.kv_cache_usage",
    "PoolControl": "widgets.pool_control",
    "ReplicaLoad": "widgets.replica_load",
    "RolloutProgress": "widgets.rollout_progress",
    "SessionStickiness": "widgets.session_stickiness",
    "StalenessView": "widgets.staleness_view",
    "Still": "widgets.figures",
    "TrajectoryView": "widgets.trajectory_view",
    "length_figure": "widgets.figures",
    "load_figure": "widgets.figures",
    "policy_figure": "widgets.study",
    "replica_figure": "widgets.figures",
    "reward_figure": "widgets.figures",
    "write_report": "widgets.report",
}

__all__ = [
    "KVCacheUsage",
    "PoolControl",
    "ReplicaLoad",
    "RolloutProgress",
    "SessionStickiness",
    "StalenessView",
    "Still",
    "TrajectoryView",
    "length_figure",
    "load_figure",
    "policy_figure",
    "replica_figure",
    "reward_figure",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
