"""Pictures of a run: units, absence, many and few replicas, the same bytes every time."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from matplotlib import style
from matplotlib.colors import to_hex
from matplotlib.text import Text

from widgets import theme
from widgets.figures import Still, length_figure, load_figure, png, replica_figure, reward_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = (load_figure, replica_figure, reward_figure, length_figure)


def make_load(replicas: int = 2, samples: int = 20, batch: list | None = None) -> pd.DataFrame:
    rows = [
        {
            "t_s": float(t),
            "replica_id": f"replica-{number}",
            "in_flight": t % 7,
            "running": min(t % 7, 4),
            "waiting": max(t % 7 - 4, 0),
            "kv_cache_usage": (t % 7) / 10,
        }
        for t in range(samples)
        for number in range(replicas)
    ]
    frame = pd.DataFrame(rows)
    if batch is not None:
        frame["batch"] = pd.array([batch[int(t)] for t in frame["t_s"]], dtype="Int64")
    return frame


def make_replicas(count: int = 2) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "replica_id": [f"replica-{number}" for number in range(count)],
            "requests": pd.array([12] * count, dtype="Int64"),
            "prompt_tokens": pd.array([4000] * count, dtype="Int64"),
            "cached_tokens": pd.array([1000] * count, dtype="Int64"),
            "generation_tokens": pd.array([900] * count, dtype="Int64"),
            "tokens_per_s": pd.array([45.5] * count, dtype="Float64"),
            "peak_in_flight": pd.array([8] * count, dtype="Int64"),
        }
    )


def make_rollouts(batches: int = 2, size: int = 6) -> pd.DataFrame:
    total = batches * size
    return pd.DataFrame(
        {
            "batch": np.repeat(np.arange(batches), size),
            "reward": pd.array([(i % 5) / 4 for i in range(total)], dtype="Float64"),
            "status": ["done"] * total,
            "sampled_tokens": [40 + 13 * (i % 9) for i in range(total)],
            "num_turns": [1 + i % 3 for i in range(total)],
        }
    )


def texts(figure: Figure) -> str:
    """Every text in the figure, ticks included."""
    png(figure)
    return "\n".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


def axis_labels(figure: Figure) -> set[str]:
    found = {label for axes in figure.axes for label in (axes.get_xlabel(), axes.get_ylabel())}
    return found - {""}


def lines(figure: Figure, panel: int) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata(), dtype=float) for line in figure.axes[panel].lines]


# ---------------------------------------------------------------------------- all of them


def test_axes_name_their_units():
    assert axis_labels(load_figure(make_load())) == {"requests", "KV cache (%)", "time (s)"}
    assert axis_labels(replica_figure(make_replicas())) == {
        "prompt tokens",
        "replica",
        "generated tokens/s",
    }
    assert axis_labels(reward_figure(make_rollouts())) == {"reward", "rollouts", "batch"}
    assert axis_labels(length_figure(make_rollouts())) == {
        "sampled tokens per rollout",
        "turns per rollout",
        "batch",
    }


@pytest.mark.parametrize("draw", FIGURES)
@pytest.mark.parametrize("columns", [[], ["t_s", "replica_id", "batch", "reward", "status"]])
def test_table_without_rows_says_no_data(draw, columns):
    figure = draw(pd.DataFrame(columns=columns))
    assert "no data" in texts(figure)
    assert axis_labels(figure)
    assert "no data" in repr(Still(figure))


@pytest.mark.parametrize("draw", FIGURES)
def test_columns_of_missing_values_say_no_data(draw):
    frame = {load_figure: make_load, replica_figure: make_replicas}.get(draw, make_rollouts)()
    known = [name for name in ("t_s", "replica_id", "batch", "status") if name in frame]
    assert "no data" in texts(draw(frame[known]))
    empty = frame.assign(**{name: np.nan for name in frame if name not in known})
    assert "no data" in texts(draw(empty))


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_one_to_sixteen_replicas_are_all_named(count):
    for figure in (load_figure(make_load(count)), replica_figure(make_replicas(count))):
        named = texts(figure)
        assert all(f"replica-{number}" in named for number in range(count))


def test_picture_is_the_same_every_time():
    assert png(load_figure(make_load())) == png(load_figure(make_load()))


def test_picture_does_not_depend_on_the_style_of_the_notebook():
    def draw() -> list[bytes]:
        frames = (make_load(batch=[0] * 10 + [1] * 10), make_replicas(), make_rollouts())
        return [
            png(draw(frame)) for draw, frame in zip(FIGURES, (*frames, frames[-1]), strict=True)
        ]

    usual = draw()
    with style.context("dark_background"):
        assert draw() == usual


def test_picture_is_opaque_white():
    assert to_hex(load_figure(make_load()).get_facecolor(), keep_alpha=True) == "#ffffffff"


def test_still_is_a_png_and_says_in_words_what_it_shows():
    still = Still(load_figure(make_load(batch=[0] * 10 + [1] * 10)))
    assert still._repr_png_().startswith(b"\x89PNG")
    assert repr(still) == (
        "Load of 2 replicas over 19 s. At most 6 requests in flight, on replica-0. "
        "KV cache at most 60% in use (ok), on replica-0. 2 batches marked."
    )


def test_names_from_data_are_not_read_as_formulas():
    load, replicas = make_load(1), make_replicas(1)
    load["replica_id"] = replicas["replica_id"] = "$x_{$ \n$"
    for figure in (load_figure(load), replica_figure(replicas)):
        png(figure)


def test_drawing_needs_no_pyplot():
    code = "import sys, widgets.figures; print('matplotlib.pyplot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, widgets; print({'matplotlib', 'pandas', 'jinja2'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


# ---------------------------------------------------------------------------- load


def test_missing_engine_figures_are_gaps_not_zeros():
    load = make_load(1, 20).astype({"kv_cache_usage": "Float64"})
    load.loc[5:9, "kv_cache_usage"] = pd.NA
    usage = lines(load_figure(load), panel=1)[0]
    assert np.isnan(usage[5:10]).all()
    assert np.isfinite(np.delete(usage, range(5, 10))).all()


def test_replica_that_stopped_reporting_says_since_when():
    load = make_load(2, 20).astype({"kv_cache_usage": "Float64"})
    load.loc[(load["replica_id"] == "replica-1") & (load["t_s"] > 11), "kv_cache_usage"] = pd.NA
    assert texts(load_figure(load)).count("no data since 11 s") == 1


def test_kv_cache_use_comes_with_a_word():
    load = make_load(3, 4)
    load["kv_cache_usage"] = load["replica_id"].map(
        {"replica-0": 0.5, "replica-1": 0.9, "replica-2": 0.99}
    )
    shown = texts(load_figure(load))
    assert "peak 50% – ok" in shown
    assert "peak 90% – high" in shown
    assert "peak 99% – full" in shown


def test_batches_are_marked_by_name():
    shown = texts(load_figure(make_load(1, 20, batch=[7] * 8 + [None] * 4 + [8] * 8)))
    assert "batch 7" in shown
    assert " 8" in shown.split("\n")
    assert "batches" in shown


def test_hundreds_of_batches_do_not_fill_the_picture_with_names():
    figure = load_figure(make_load(1, 300, batch=list(range(300))))
    assert len([t for t in figure.axes[0].texts if t.get_text().strip().isdecimal()]) < 60


def test_long_runs_count_in_minutes_and_hours():
    for samples, step_s, unit in ((20, 60, "min"), (20, 3600, "h")):
        load = make_load(1, samples)
        load["t_s"] *= step_s
        assert f"time ({unit})" in axis_labels(load_figure(load))


def test_rows_out_of_order_are_drawn_in_order():
    load = make_load(2)
    shuffled = load.sample(frac=1, random_state=1)
    assert png(load_figure(shuffled)) == png(load_figure(load))


# ---------------------------------------------------------------------------- replicas


def test_bars_add_computed_and_cached_prompt_tokens():
    figure = replica_figure(make_replicas(1))
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert [width for width in widths if np.isfinite(width)] == [3000, 1000]
    assert "4,000, 25% cached" in texts(figure)


def test_unknown_cache_hits_are_not_drawn_as_computed():
    replicas = make_replicas(1).assign(cached_tokens=pd.array([pd.NA], dtype="Int64"))
    shown = texts(replica_figure(replicas))
    assert "4,000, cached unknown" in shown
    assert "not known which" in shown


def test_replica_ten_comes_after_replica_two():
    shown = texts(replica_figure(make_replicas(11).iloc[::-1]))
    assert shown.index("replica-2") < shown.index("replica-10")


# ---------------------------------------------------------------------------- rollouts


def test_rollouts_without_a_reward_are_counted_not_zeroed():
    rollouts = make_rollouts(1, 6).assign(reward=pd.array([1.0] * 6, dtype="Float64"))
    rollouts.loc[:1, "reward"] = pd.NA
    rollouts.loc[:1, "status"] = ["failed", "cancelled"]
    figure = reward_figure(rollouts)
    assert "4 of 6 rollouts have one, 1 cancelled and 1 failed do not" in texts(figure)
    assert lines(figure, panel=0)[-1].tolist() == [1.0]
    assert [bar.get_height() for bar in figure.axes[1].patches] == [2]


def test_batch_in_which_all_failed_has_no_mean():
    rollouts = make_rollouts(2, 4)
    rollouts.loc[rollouts["batch"] == 1, "reward"] = pd.NA
    rollouts.loc[rollouts["batch"] == 1, "status"] = "failed"
    figure = reward_figure(rollouts)
    means = next(line for line in lines(figure, panel=0) if len(line) == 2 and line[0] != 0)
    assert np.isnan(means[1])
    assert "no value" in texts(figure)


def test_equal_rewards_can_be_drawn():
    for value in (0.0, 1.0, -3.0):
        png(reward_figure(make_rollouts().assign(reward=value)))


def test_many_batches_are_drawn_as_bands():
    assert "Bands" in texts(reward_figure(make_rollouts(40)))
    assert "bands" in texts(length_figure(make_rollouts(40)))


def test_rollouts_without_a_batch_column_are_one_group():
    assert "all" in texts(length_figure(make_rollouts().drop(columns="batch"))).split("\n")


# ---------------------------------------------------------------------------- theme


def test_sixteen_replicas_look_different():
    styles = theme.replica_styles(f"replica-{number}" for number in range(16))
    assert len(set(styles.values())) == 16


def test_replica_looks_the_same_beside_others_as_alone():
    among = theme.replica_styles(["replica-0", "replica-3", "replica-12"])["replica-3"]
    assert theme.replica_styles(["replica-3"])["replica-3"] == among


@pytest.mark.parametrize(
    ("share", "word"),
    [(None, "no data"), (float("nan"), "no data"), (0.0, "ok"), (0.9, "high"), (0.98, "full")],
)
def test_kv_words(share, word):
    assert theme.kv_word(share) == word
