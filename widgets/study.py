"""Policies side by side on one workload: what was cached, and how long turns waited. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from widgets import theme
from widgets.drawing import (
    absent,
    add_legend,
    count,
    empty_figure,
    floats,
    label,
    names,
    new_figure,
    set_title,
    style_axes,
)
from widgets.spread import batch_ticks, draw_spread

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from widgets.drawing import Floats

TITLE = "Policies on one workload"


def policy_figure(turns: pd.DataFrame) -> Figure:
    """Prefix-cache hits by turn, time to first token, and turns per replica, policy by policy.

    Args:
        turns: a row per turn: ``policy``, ``turn`` (1, 2, … in its session), ``replica_id``,
            ``prompt_tokens``, ``cached_tokens`` (those of them from the prefix cache; missing where
            unknown) and ``first_token_s`` (at the caller).
    """
    if not len(turns):
        return empty_figure(TITLE, x="turn", y="prefix-cache hit rate (%)")
    rows = turns.assign(policy=names(turns, "policy"), replica_id=names(turns, "replica_id"))
    policies = list(dict.fromkeys(rows["policy"]))
    figure = new_figure(11, 3.9)
    hits, waits, shares = figure.subplots(1, 3, width_ratios=[4, 4, 3])
    lines = _draw_hits(hits, rows, policies)
    _draw_waits(waits, rows, policies)
    _draw_shares(shares, rows, policies)
    add_legend(figure, lines)
    set_title(figure, TITLE, _words(rows, policies))
    return figure


def hit_rate(rows: pd.DataFrame) -> float:
    """Cached ÷ prompt tokens of the rows for which both are known; NaN where none is."""
    prompt, cached = floats(rows, "prompt_tokens"), floats(rows, "cached_tokens")
    known = np.isfinite(prompt) & np.isfinite(cached)
    asked = prompt[known].sum()
    return float(cached[known].sum() / asked) if asked else float("nan")


def _draw_hits(axes: Axes, rows: pd.DataFrame, policies: list[str]) -> list[object]:
    """The hit rate of each turn over all sessions."""
    drawn: list[object] = []
    for number, policy in enumerate(policies):
        style = theme.replica_style(number)
        by_turn = rows[rows["policy"] == policy].groupby("turn")
        rates = [(turn, hit_rate(group)) for turn, group in by_turn]
        drawn += axes.plot(
            [float(str(turn)) for turn, _ in rates], [rate for _, rate in rates],
            color=style.colour, dashes=style.dash or (1, 0), marker=style.marker, markersize=5,
            label=label(policy),
        )  # fmt: skip
    style_axes(axes, x="turn of its session", y="hit rate (%)", title="Prefix cache, by turn")
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def _draw_waits(axes: Axes, rows: pd.DataFrame, policies: list[str]) -> None:
    title = "Time to first token (diamond: mean)"
    style_axes(axes, x="policy", y="time to first token (s)", title=title)
    groups = [floats(rows[rows["policy"] == policy], "first_token_s") for policy in policies]
    draw_spread(axes, groups, theme.COLOURS[0], ".2f")
    batch_ticks(axes, policies)
    _lean(axes)


def _draw_shares(axes: Axes, rows: pd.DataFrame, policies: list[str]) -> None:
    """How the turns fell on the replicas, stacked to one."""
    style_axes(axes, x="policy", y="share of turns (%)", title="Turns per replica")
    styles = theme.replica_styles(rows["replica_id"])
    below = np.zeros(len(policies))
    for place, (replica_id, style) in enumerate(styles.items()):
        share = _share(rows, policies, replica_id)
        axes.bar(
            range(len(policies)), share, bottom=below, color=style.colour, width=0.6,
            edgecolor=theme.INK, linewidth=0.5, hatch=("", "///", "...", "xxx")[place % 4],
        )  # fmt: skip
        for slot, value in enumerate(share):
            if value >= 0.12:
                axes.annotate(
                    label(replica_id), (slot, below[slot] + value / 2), ha="center", va="center",
                    fontsize=7.5, color=theme.INK,
                    bbox={"facecolor": theme.PAPER, "edgecolor": "none", "pad": 1.5},
                )  # fmt: skip
        below += share
    if not styles:
        absent(axes)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.grid(visible=False, axis="x")
    batch_ticks(axes, policies)
    _lean(axes)


def _share(rows: pd.DataFrame, policies: list[str], replica_id: str) -> Floats:
    found = [rows.loc[rows["policy"] == policy, "replica_id"] for policy in policies]
    return np.array([float((ids == replica_id).mean()) for ids in found])


def _lean(axes: Axes) -> None:
    """Names of policies are longer than their slots are wide."""
    axes.tick_params(axis="x", labelrotation=18)


def _words(rows: pd.DataFrame, policies: list[str]) -> str:
    told = []
    for policy in policies:
        own = rows[rows["policy"] == policy]
        rate, waits = hit_rate(own), floats(own, "first_token_s")
        waits = waits[np.isfinite(waits)]
        cached = f"{rate:.0%} cached" if np.isfinite(rate) else "no data on the cache"
        waited = f", median first token after {np.median(waits):.2f} s" if len(waits) else ""
        told.append(f"{policy}: {cached}{waited}")
    return f"{count(len(rows), 'turn')}. {'; '.join(told)}."
