"""A run as one HTML file that needs nothing else: no scripts, no request, pictures inside.

Everything that comes from data is escaped; the page also forbids itself to load anything, so that
not even a browser's guess would leave the file. The same run gives the same bytes.
"""

from __future__ import annotations

import base64
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import numpy as np

from widgets.conversation import conversation_of, cut
from widgets.drawing import count, floats, names
from widgets.figures import length_figure, load_figure, png, replica_figure, reward_figure
from widgets.tables import number, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.figure import Figure

    from workbench.rollout.trajectory import Trajectory

PICTURE_DPI = 150
"""Sharp on dense screens and on paper."""

NAMED_ROLLOUTS = 8
"""Of those that failed in the same way, so many are named."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as an address that holds it, and what it shows in words."""

    address: str
    words: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Rollouts that failed with the same error."""

    error: str
    number: str
    rollouts: str


def write_report(
    path: Path,
    *,
    title: str,
    facts: Mapping[str, str],
    replicas: pd.DataFrame,
    batches: pd.DataFrame,
    rollouts: pd.DataFrame,
    load: pd.DataFrame,
    examples: Sequence[Trajectory],
) -> None:
    """Write a run as one HTML file. An existing file is replaced as a whole or not at all.

    Args:
        path: of the file.
        title: what was run.
        facts: what a reader must know of it, by name: model, device, settings.
        replicas: see :func:`widgets.figures.replica_figure`; shown as a table, too.
        batches: a row per batch, any columns; names that end in ``_s``, ``_per_s``, ``_rate`` or
            ``_share`` are written with their unit.
        rollouts: see :func:`widgets.figures.reward_figure` and
            :func:`widgets.figures.length_figure`; ``rollout_id`` and ``error`` say more of
            those that failed; ``staleness`` is averaged, where a stream played them.
        load: see :func:`widgets.load.load_figure`.
        examples: rollouts to show in full.
    """
    page = _template().render(
        title=title,
        summary=_summary(rollouts),
        facts=facts,
        replicas=table_of(replicas),
        replica_picture=_picture(replica_figure(replicas)),
        load_picture=_picture(load_figure(load)),
        batches=table_of(batches),
        reward_picture=_picture(reward_figure(rollouts)),
        length_picture=_picture(length_figure(rollouts)),
        examples=[conversation_of(trajectory) for trajectory in examples],
        failures=_failures(rollouts),
    )
    _write_whole(path, page.encode("utf-8", errors="backslashreplace"))


def _template() -> jinja2.Template:
    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _picture(figure: Figure) -> Picture:
    data = base64.b64encode(png(figure, PICTURE_DPI)).decode("ascii")
    return Picture(f"data:image/png;base64,{data}", str(figure.get_label()))


def _summary(rollouts: pd.DataFrame) -> list[tuple[str, str]]:
    """The few numbers to begin with: value and name."""
    ends = Counter(_column(rollouts, "status"))
    has_ends = "status" in rollouts.columns
    rewards = floats(rollouts, "reward")
    rewards = rewards[np.isfinite(rewards)]
    tokens = floats(rollouts, "sampled_tokens")
    ages = floats(rollouts, "staleness")
    ages = ages[np.isfinite(ages)]
    has_tokens = np.isfinite(tokens).any()
    return [
        (number(len(rollouts)), "rollouts"),
        *(
            (number(ends[end] if has_ends else None), end)
            for end in ("done", "failed", "cancelled")
        ),
        (number(rewards.mean() if len(rewards) else None, 3), f"mean of {len(rewards):,} rewards"),
        (number(np.nansum(tokens) if has_tokens else None), "sampled tokens"),
        *([(number(ages.mean(), 2), "versions behind the learner")] if len(ages) else []),
    ]


def _failures(rollouts: pd.DataFrame) -> list[Failure]:
    """Failed rollouts by their error, the most frequent first."""
    failed = rollouts[[status == "failed" for status in _column(rollouts, "status")]]
    by_error: dict[str, list[str]] = {}
    for error, name in zip(_column(failed, "error"), _column(failed, "rollout_id"), strict=True):
        by_error.setdefault(error, []).append(name)
    return [
        Failure(
            cut(error) or "no error text was recorded",
            count(len(by_error[error]), "rollout"),
            _listed([name for name in by_error[error] if name]),
        )
        for error in sorted(by_error, key=lambda error: (-len(by_error[error]), error))
    ]


def _column(frame: pd.DataFrame, column: str) -> list[str]:
    return names(frame, column) if column in frame.columns else [""] * len(frame)


def _listed(rollout_ids: Sequence[str]) -> str:
    more = len(rollout_ids) - NAMED_ROLLOUTS
    listed = ", ".join(rollout_ids[:NAMED_ROLLOUTS])
    return f"{listed} and {more:,} more" if more > 0 else listed


def _write_whole(path: Path, data: bytes) -> None:
    """Write beside the file, then put it in its place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
