"""Pictures of every kind of part, and a page that draws them with a model that records."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widgets import theme
from widgets.browser import esm
from widgets.pictures.picture import (
    Bar,
    Bars,
    Fact,
    Facts,
    Flow,
    Level,
    Line,
    Lines,
    Link,
    Picture,
    Table,
    Token,
    Tokens,
)

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

NOW_S = 1_764_417_784.0  # 29 November 2025, 12:03:04 UTC
EVIL = "<img src=x onerror='window.broken=1'><script>window.broken=1</script>"


def lines(
    title: str = "In flight",
    *,
    unit: str = "requests",
    source: Any = "books",
    series: int = 4,
    points: int = 300,
    seed: float = 1.0,
    **more: Any,
) -> Lines:
    """Waves of whole requests, or of shares; one series has a hole, one ends early."""
    times = [NOW_S - points + 1 + i for i in range(points)]

    def value(which: int, i: int) -> float | None:
        if (which == 1 and 0.4 < i / points < 0.5) or (which == 2 and i > 0.8 * points):
            return None
        wave = 0.5 + 0.4 * math.sin(i / (17 + 5 * which) + seed * which)
        return wave if unit == "share" else float(round(12 * wave))

    names = [f"replica-{i}" for i in range(series)]
    styles = theme.replica_styles(names)
    found = tuple(
        Line(
            name,
            [value(which, i) for i in range(points)],
            styles[name].colour,
            styles[name].dash,
            styles[name].marker,
        )
        for which, name in enumerate(names)
    )
    return Lines(title, unit, times, found, source, **more)


def bars() -> Bars:
    shares = (0.42, 0.93, None, 0.99)
    texts = ("42.0% ok", "93.0% high", "no data", "99.0% full")
    return Bars(
        "KV cache in use, now",
        "share",
        tuple(
            Bar(f"replica-{i}", share, text, theme.COLOURS[i])
            for i, (share, text) in enumerate(zip(shares, texts, strict=True))
        ),
        1.0,
        (Level(theme.KV_HIGH, "high"), Level(theme.KV_FULL, "full")),
    )  # fmt: skip


def histogram() -> Bars:
    counts = (0, 2, 5, 11, 34, 60, 41, 12, 3, 1)
    return Bars(
        "Rewards",
        "rollouts",
        tuple(
            Bar(f"{i / 10:.2f} to {(i + 1) / 10:.2f}", float(count), f"{count}", theme.COLOURS[0])
            for i, count in enumerate(counts)
        ),
        note="169 rollouts with a reward, 0.523 on average",
    )


def facts() -> Facts:
    return Facts(
        "Engines: what they report",
        (
            Fact("running", "12 requests (3 of 4 report)", "warn"),
            Fact("waiting", "0 requests"),
            Fact("sampled", "1,234 tokens/s"),
            Fact("fullest KV cache", "99.0% full (replica-3)", "bad"),
            Fact("time to first token, p95", "–"),
        ),
    )


def table(rows: int = 6) -> Table:
    return Table(
        "Rollouts that ended, the last ones first",
        ("rollout", "status", "reward", "turns", "wall time (s)", "error"),
        tuple(
            (f"rollout-{i}", "failed" if i == 2 else "done", "–" if i == 2 else f"{i / 7:.3f}",
             f"{i % 4 + 1}", f"{1.7 * i + 0.4:,.1f}",
             "ToolTimeout: no answer in 30 s" if i == 2 else "")
            for i in range(rows)
        ),
        numeric=(False, False, True, True, True, False),
        note="and 12 older",
        key=0,
    )  # fmt: skip


def flow() -> Flow:
    left = (*(f"session-{i}" for i in range(6)), "other sessions")
    turns = ((0, 0, 14), (1, 0, 9), (1, 2, 2), (2, 1, 11), (3, 1, 6), (3, 0, 1), (4, 2, 8),
             (5, 2, 5), (6, 0, 20), (6, 1, 26), (6, 2, 18))  # fmt: skip
    return Flow(
        "Where the busiest sessions ran, last 5 min 00 s",
        "turns",
        left,
        ("replica-0", "replica-1", "replica-2"),
        tuple(Link(source, target, float(value)) for source, target, value in turns),
        theme.COLOURS[:3],
    )


def tokens(count: int = 160) -> Tokens:
    words = "What is 17 times 23 ? Let me compute : 17 × 20 = 340 , 17 × 3 = 51 , so it is 391 .␊"
    texts = [f" {word}" for word in words.split(" ")]
    return Tokens(
        "Tokens of segment 1 of 1",
        tuple(
            Token(
                texts[i % len(texts)],
                int(i % 60 > 22),
                f"id {1000 + 37 * i % 900}"
                + (f", log p {-(i % 11) / 7:.3f}, version {i // 80 + 3}" if i % 60 > 22 else ""),
                1 - math.exp(-(i % 11) / 7) if i % 60 > 22 else None,
            )
            for i in range(count)
        ),
        note="23 prompt tokens, 137 response tokens",
    )


def picture(*parts: Any, **more: Any) -> Picture:
    known: dict[str, Any] = {
        "status": "live",
        "span_s": (NOW_S - 300, NOW_S),
        "words": "4 replicas. 21 requests in flight, 0 queued (books). 19 running (engines).",
    }
    return Picture("Replica load: lab", parts, **(known | more))


def load() -> Picture:
    return picture(
        facts(),
        lines(),
        lines("Running", source="engine", seed=2.0),
        lines("KV cache in use", unit="share", source="engine",
              levels=(Level(theme.KV_HIGH, "high"), Level(theme.KV_FULL, "full"))),
        bars(),
        table(),
    )  # fmt: skip


# ---------------------------------------------------------------------------- the page

PAGE = """<!doctype html><html><head><meta charset="utf-8"><title>scene</title></head>
<body style="margin: 12px"><div id="place"></div></body></html>"""

START = """async ([module, state]) => {
  class Model {
    constructor(state) { this.state = state; this.sent = []; this.changed = {}; this.heard = {}; }
    get(name) { return this.state[name]; }
    set(name, value) { this.changed[name] = value; }
    save_changes() {
      const changed = this.changed;
      this.changed = {};
      this.sent.push(changed);
      this.receive(changed);
    }
    receive(changed) {
      Object.assign(this.state, changed);
      for (const name of Object.keys(changed)) {
        for (const listener of this.heard[`change:${name}`] ?? []) listener();
      }
    }
    on(event, listener) { (this.heard[event] ??= []).push(listener); }
    off(event, listener) {
      this.heard[event] = this.heard[event].filter((other) => other !== listener);
    }
  }
  const address = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
  const widget = (await import(address)).default;
  window.model = new Model(state);
  window.end = widget.render({ model: window.model, el: document.getElementById("place") });
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""

FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

DARK = {
    "--jp-ui-font-color1": "rgba(255,255,255,1)",
    "--jp-ui-font-color2": "rgba(255,255,255,.7)",
    "--jp-border-color2": "#424242",
    "--jp-layout-color0": "#111111",
    "--jp-layout-color2": "#333333",
    "--jp-brand-color1": "#2196f3",
}
"""JupyterLab's own dark theme."""

DARKEN = """(colours) => {
  for (const name in colours) document.body.style.setProperty(name, colours[name]);
  document.documentElement.style.background = "#111111";
}"""


@dataclass
class Scene:
    """A widget in a page, and the model that it talks to."""

    page: Page

    def receive(self, picture: Picture | None = None, **state: Any) -> None:
        """What Python sends."""
        if picture is not None:
            state["picture"] = picture.to_json()
        self.page.evaluate("(state) => window.model.receive(state)", state)
        self.settle()

    def settle(self) -> None:
        """Until what was asked for is drawn."""
        self.page.evaluate(FRAME)

    def sent(self) -> list[dict[str, Any]]:
        """What the browser sent to Python, in order."""
        sent: list[dict[str, Any]] = self.page.evaluate("() => window.model.sent")
        return sent

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


def show(page: Page, picture: Picture, *, dark: bool = False, **state: Any) -> Scene:
    """Draw a picture in an empty page."""
    page.goto("about:blank")
    page.set_content(PAGE)
    if dark:
        page.evaluate(DARKEN, DARK)
    given = {"picture": picture.to_json(), "window": {"length_s": 300}, "selected": ""} | state
    page.evaluate(START, [esm(), json.loads(json.dumps(given))])
    return Scene(page)


def chart(page: Page, title: str) -> Locator:
    """A part by its title."""
    return page.locator(f'.part:has(.part-title:text-is("{title}"))')


def at(part: Locator, share: float) -> tuple[float, float]:
    """Where a share of a chart's width is, in the page."""
    box = part.locator(".plot").bounding_box()
    return box["x"] + 44 + share * (box["width"] - 44 - 34), box["y"] + 60
