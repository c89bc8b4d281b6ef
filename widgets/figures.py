"""Tables of a run as pictures: DataFrame in, :class:`matplotlib.figure.Figure` out. Pure.

Nothing here touches pyplot or the notebook's style. A missing value is drawn as an absence, never
as zero. A column of measurements may be missing as a whole; ``t_s`` and ``replica_id`` may not.
What a figure shows in words is its label, ``figure.get_label()``.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from PIL import Image

from widgets import theme
from widgets.drawing import (
    Floats,
    absent,
    add_legend,
    count,
    empty_figure,
    floats,
    label,
    names,
    new_figure,
    patch,
    set_title,
    style_axes,
    thousands,
    write,
)
from widgets.load import load_figure
from widgets.spread import batch_ticks, draw_spread, how

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Still", "length_figure", "load_figure", "png", "replica_figure", "reward_figure"]

DPI = 110


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """The figure as an opaque PNG, the same bytes every time.

    Args:
        figure: one of this module's.
        dpi: dots per inch.
    """
    drawn, saved = io.BytesIO(), io.BytesIO()
    figure.savefig(
        drawn, format="png", dpi=dpi, facecolor=theme.PAPER, pil_kwargs={"compress_level": 0}
    )
    # A palette costs nothing that can be seen and makes the file less than half as large.
    picture = Image.open(drawn).convert("RGB")
    picture = picture.quantize(255, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(saved, format="png", optimize=True)
    return saved.getvalue()


class Still:
    """A figure as the last line of a cell: a picture that a saved notebook keeps.

    Args:
        figure: one of this module's.
        dpi: dots per inch.
    """

    def __init__(self, figure: Figure, dpi: int = DPI) -> None:
        self.figure = figure
        self._dpi = dpi

    def _repr_png_(self) -> bytes:
        return png(self.figure, self._dpi)

    def __repr__(self) -> str:
        return str(self.figure.get_label()) or "A figure without a description."


# ---------------------------------------------------------------------------- replicas


def replica_figure(replicas: pd.DataFrame) -> Figure:
    """What each replica did: its prompt tokens, computed and cached, and its speed.

    Args:
        replicas: a row per replica: ``replica_id``, ``requests``, ``prompt_tokens``,
            ``cached_tokens`` (those of them from the prefix cache), ``generation_tokens``,
            ``tokens_per_s`` (generated), ``peak_in_flight`` (requests).
    """
    title = "Work per replica"
    if not len(replicas):
        return empty_figure(title, x="prompt tokens", y="replica")
    rows = replicas.assign(replica_id=names(replicas, "replica_id"))
    rows = rows.sort_values("replica_id", key=lambda ids: ids.map(theme.natural_key), kind="stable")
    figure = new_figure(9, 1.6 + 0.46 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    _draw_prompts(left, rows)
    _draw_speed(right, rows)
    left.set_yticks(range(len(rows)), _bar_names(rows))
    left.set_ylim(len(rows) - 0.4, -0.6)
    legend = [
        patch(theme.COLOURS[0], "computed"),
        patch(theme.COLOURS[5], "from the prefix cache", "///"),
    ]
    if not np.isfinite(floats(rows, "cached_tokens")).all():
        legend.append(patch(theme.GRID, "not known which"))
    add_legend(figure, legend)
    set_title(figure, title, _replica_words(rows))
    return figure


def _bar_names(rows: pd.DataFrame) -> list[str]:
    """Replica, and below it its requests as far as they are known."""
    found = []
    peaks = floats(rows, "peak_in_flight")
    for name, requests, peak in zip(
        rows["replica_id"], floats(rows, "requests"), peaks, strict=True
    ):
        facts = [count(int(requests), "request")] if np.isfinite(requests) else []
        facts += [f"≤ {peak:,.0f} at once"] if np.isfinite(peak) else []
        found.append("\n".join([label(name), ", ".join(facts)] if facts else [label(name)]))
    return found


def _draw_prompts(axes: Axes, rows: pd.DataFrame) -> None:
    prompt, cached = floats(rows, "prompt_tokens"), floats(rows, "cached_tokens")
    slots = np.arange(len(rows))
    computed = prompt - cached
    _bars(axes, slots, computed, theme.COLOURS[0])
    _bars(axes, slots, np.where(np.isfinite(prompt), cached, np.nan), theme.COLOURS[5], computed)
    _bars(axes, slots, np.where(np.isfinite(cached), np.nan, prompt), theme.GRID)
    for slot, (asked, hit) in enumerate(zip(prompt, cached, strict=True)):
        share = f"{hit / asked:.0%} cached" if np.isfinite(hit) and asked else "cached unknown"
        _bar_value(axes, slot, asked, f"{asked:,.0f}, {share}" if asked else "0")
    style_axes(axes, x="prompt tokens", y="replica", title="Prompt tokens, computed and cached")
    thousands(axes, "x")
    _leave_room(axes, prompt, 1.45)


def _draw_speed(axes: Axes, rows: pd.DataFrame) -> None:
    speed = floats(rows, "tokens_per_s")
    _bars(axes, np.arange(len(rows)), speed, theme.COLOURS[2])
    for slot, (value, tokens) in enumerate(
        zip(speed, floats(rows, "generation_tokens"), strict=True)
    ):
        of = f" ({tokens:,.0f} tokens)" if np.isfinite(tokens) else ""
        _bar_value(axes, slot, value, f"{value:,.{1 if value < 100 else 0}f}{of}")
    style_axes(axes, x="generated tokens/s", title="Generated tokens per second")
    axes.tick_params(labelleft=False)
    _leave_room(axes, speed, 1.7)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4))


def _bars(
    axes: Axes, slots: np.ndarray, lengths: Floats, colour: str, left: Floats | None = None
) -> None:
    hatch = "" if left is None else "///"
    axes.barh(
        slots, lengths, left=left, color=colour, hatch=hatch, height=0.6, edgecolor=theme.INK,
        linewidth=0.5,
    )  # fmt: skip


def _bar_value(axes: Axes, slot: int, value: float, text: str) -> None:
    if np.isfinite(value):
        write(axes, value, slot, f"  {text}", va="center")
    else:
        write(axes, 0, slot, f"  {theme.MISSING} no data", va="center", color=theme.MUTED)


def _leave_room(axes: Axes, lengths: Floats, factor: float) -> None:
    longest = float(np.nanmax(lengths)) if np.isfinite(lengths).any() else 0.0
    axes.set_xlim(0, longest * factor or 1.0)
    axes.grid(visible=False, axis="y")


def _replica_words(rows: pd.DataFrame) -> str:
    prompt, cached = floats(rows, "prompt_tokens"), floats(rows, "cached_tokens")
    speed = floats(rows, "tokens_per_s")
    words = f"Work of {count(len(rows), 'replica')}"
    if np.isfinite(prompt).any():
        words += f": {np.nansum(prompt):,.0f} prompt tokens"
    both = np.isfinite(prompt) & np.isfinite(cached)
    if prompt[both].sum():
        words += f", {cached[both].sum() / prompt[both].sum():.0%} of them cached"
    if np.isfinite(speed).any():
        words += f"; together {np.nansum(speed):,.1f} generated tokens/s"
    return words + "."


# ---------------------------------------------------------------------------- rollouts


def reward_figure(rollouts: pd.DataFrame) -> Figure:
    """Rewards by batch, and how many rollouts have none.

    Args:
        rollouts: a row per rollout: ``batch``, ``reward`` (missing where there is none) and
            ``status``. Without a column ``batch`` all are one.
    """
    if not len(rollouts):
        return empty_figure("Rewards by batch", x="batch", y="reward")
    batches, groups = _by_batch(rollouts, "reward")
    missing = [int(np.isnan(group).sum()) for group in groups]
    figure = new_figure(9, 4.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    style_axes(above, y="reward", title=how(len(groups)).capitalize())
    draw_spread(above, groups, theme.COLOURS[0], ".2f")
    style_axes(below, x="batch", y="rollouts", title="Rollouts without a reward")
    below.bar(range(len(missing)), missing, color=theme.COLOURS[1], width=0.6)
    below.set_ylim(0, max(*missing, 1) * 1.7)
    below.grid(visible=False, axis="x")
    thousands(below, "y", 2)
    for slot, number in enumerate(missing):
        if number and len(missing) <= 40:
            write(below, slot, number, f"{number:,}", ha="center", va="bottom")
    if not any(missing):
        absent(below, "none")
    batch_ticks(below, batches)
    set_title(figure, f"Rewards by batch: {_counted(rollouts)}", _reward_words(rollouts, batches))
    return figure


def length_figure(rollouts: pd.DataFrame) -> Figure:
    """Sampled tokens and turns per rollout, by batch.

    Args:
        rollouts: a row per rollout: ``batch``, ``sampled_tokens``, ``num_turns`` and ``status``;
            a failed one counts with what it sampled before. Without a column ``batch`` all are
            one.
    """
    title = "Length of rollouts by batch"
    if not len(rollouts):
        return empty_figure(title, x="batch", y="sampled tokens")
    figure = new_figure(9, 3.6)
    panels = figure.subplots(1, 2, width_ratios=[3, 2])
    batches: list[str] = []
    words = [f"Length of {count(len(rollouts), 'rollout')}."]
    shown = (("sampled_tokens", "sampled tokens", ",.0f"), ("num_turns", "turns", ".1f"))
    for axes, (column, noun, form), colour in zip(panels, shown, theme.COLOURS[2:], strict=False):
        batches, groups = _by_batch(rollouts, column)
        style_axes(axes, x="batch", y=f"{noun} per rollout")
        draw_spread(axes, groups, colour, form)
        batch_ticks(axes, batches)
        known = np.concatenate(groups)
        known = known[np.isfinite(known)]
        if len(known):
            thousands(axes, "y")
            span = f"{known.min():,.0f} to {known.max():,.0f}"
            words.append(f"{noun.capitalize()}: {known.mean():{form}} on average, {span}.")
        else:
            words.append(f"No data on {noun}.")
    set_title(figure, f"{title} ({how(len(batches))})", " ".join(words))
    return figure


def _by_batch(rollouts: pd.DataFrame, column: str) -> tuple[list[str], list[Floats]]:
    """Batches in natural order, and the column's values of each; NaN where missing."""
    of = names(rollouts, "batch") if "batch" in rollouts.columns else ["all"] * len(rollouts)
    rows = np.array([name or "no batch" for name in of], dtype=object)
    values = floats(rollouts, column)
    batches = sorted(set(rows), key=theme.natural_key)
    return batches, [values[rows == batch] for batch in batches]


def _counted(rollouts: pd.DataFrame) -> str:
    """How many have a reward, and how the others ended."""
    without = rollouts[np.isnan(floats(rollouts, "reward"))]
    text = f"{len(rollouts) - len(without):,} of {count(len(rollouts), 'rollout')} have one"
    if not len(without) or "status" not in rollouts.columns:
        return text
    ends = pd.Series(names(without, "status")).value_counts().sort_index()
    return f"{text}, {' and '.join(f'{number:,} {end}' for end, number in ends.items())} do not"


def _reward_words(rollouts: pd.DataFrame, batches: list[str]) -> str:
    rewards = floats(rollouts, "reward")
    known = rewards[np.isfinite(rewards)]
    mean = f" Mean reward {known.mean():.3g}." if len(known) else ""
    return f"Rewards in {count(len(batches), 'batch')}: {_counted(rollouts)}.{mean}"
