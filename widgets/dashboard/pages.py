"""The pages of a dashboard and the pictures on them, by name. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """A page with its pictures, from top to bottom."""

    name: str
    """Its path."""
    title: str
    plots: tuple[str, ...]
    """Names in :data:`PLOTS`."""
    download: str = ""
    """The table behind it, see :mod:`widgets.dashboard.downloads`; empty where there is none."""

    @property
    def is_alone(self) -> bool:
        """Whether it is a picture with nothing around it."""
        return "/" in self.name


PLOTS = {
    "overview": "Pool",
    "load": "Replica load",
    "replicas": "Replicas",
    "lives": "Replica lives",
    "stickiness": "Session stickiness",
    "sessions": "Sessions",
    "cache": "KV-cache usage",
    "progress": "Rollout progress",
    "rollouts": "Rollouts that ended",
    "staleness": "Staleness",
    "events": "Events",
}
"""Pictures by name, with their titles. Each has a route of its own: ``plot/NAME``."""

PAGES = (
    Page("overview", "Overview", ("overview",), "history"),
    Page("replicas", "Replicas", ("load", "replicas", "lives"), "history"),
    Page("sessions", "Sessions", ("sessions", "stickiness"), "sessions"),
    Page("cache", "Cache", ("cache",), "history"),
    Page("rollouts", "Rollouts", ("progress", "rollouts"), "rollouts"),
    Page("streams", "Streams", ("staleness",)),
    Page("events", "Events", ("events",), "events"),
)

CONTROL = "control"
CONTROL_PAGE = Page(CONTROL, "Control", (CONTROL,))
"""Only where the dashboard may manage its pool."""

FIRST_PAGE = PAGES[0].name
PATHS = (*(page.name for page in PAGES), "plots", *(f"plot/{name}" for name in PLOTS))
"""Everything that a browser can be sent to, the page of control aside."""
