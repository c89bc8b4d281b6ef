"""The browser's side as ES modules: what draws pictures, and what surrounds them.

Both serve notebook widgets and Panel components.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "js"

MODULES = (
    "dom", "format", "scale", "marks", "lines", "bars", "facts", "table", "flow", "tokens",
    "parts", "fields", "frame", "widget",
)  # fmt: skip
"""Each after those that it imports; the last one's export is the whole's."""

BAR = ("dom", "fields", "bar")

CONTROL = ("dom", "format", "asking", "pooltools", "replicarow", "control")

IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:function|const) (\w+))", re.MULTILINE)


@functools.cache
def esm() -> str:
    """The module's text: it imports nothing, and exports ``default.render({model, el})``.

    ``model`` has the traits ``picture`` (JSON of a :class:`widgets.pictures.picture.Picture`),
    ``window`` (``{"length_s": …}``, or ``{"start_s": …, "end_s": …}`` after a zoom) and
    ``selected`` (the key of a row that was clicked, or the name of an action; empty for ``back``).
    It may have ``paused``: whether the reader keeps the picture still; and ``asked``: what is in
    the picture's fields, text by name.
    """
    return _bundle(MODULES, "style", "reading")


@functools.cache
def bar_esm() -> str:
    """The module of what stands above pictures, see :class:`widgets.dashboard.parts.Bar`."""
    return _bundle(BAR, "bar")


@functools.cache
def control_esm() -> str:
    """The module of the panel that manages a pool, see :mod:`widgets.control`.

    ``model`` has the traits ``picture`` (JSON of a :class:`widgets.control.panel.Panel`),
    ``asks`` (what the browser asks) and ``replies`` (what it is told).
    """
    return _bundle(CONTROL, "style", "control")


def _bundle(modules: tuple[str, ...], *styles: str) -> str:
    style = "\n".join((FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in styles)
    *inner, last = ((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in modules)
    wrapped = [_wrapped(name, text) for name, text in zip(modules, inner, strict=False)]
    return "\n".join([f"const STYLE = {json.dumps(style)};", *wrapped, _linked(last)])


def _wrapped(name: str, text: str) -> str:
    """A module as a constant that holds what it exports; its other names stay its own."""
    exported = ", ".join(EXPORT.findall(text))
    inside = EXPORT.sub("", _linked(text))
    return f"const {name}_js = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();"


def _linked(text: str) -> str:
    return IMPORT.sub(r"const \1 = \2_js;", text)
