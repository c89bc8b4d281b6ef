"""The browser's side of a picture as one ES module, for notebook widgets and Panel components."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "js"

MODULES = (
    "dom", "format", "scale", "marks", "lines", "bars", "facts", "table", "flow", "tokens",
    "parts", "frame", "widget",
)  # fmt: skip
"""Each after those that it imports; the last one's export is the whole's."""

IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([a-z]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:function|const) (\w+))", re.MULTILINE)


@functools.cache
def esm() -> str:
    """The module's text: it imports nothing, and exports ``default.render({model, el})``.

    ``model`` has the traits ``picture`` (JSON of a :class:`widgets.pictures.picture.Picture`),
    ``window`` (``{"length_s": …}``, or ``{"start_s": …, "end_s": …}`` after a zoom) and
    ``selected`` (the key of a row that was clicked, or the name of an action; empty for ``back``).
    It may have ``paused``: whether the reader keeps the picture still.
    """
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    *inner, last = ((FOLDER / f"{name}.js").read_text(encoding="utf-8") for name in MODULES)
    wrapped = [_wrapped(name, text) for name, text in zip(MODULES, inner, strict=False)]
    return "\n".join([f"const STYLE = {json.dumps(style)};", *wrapped, _linked(last)])


def _wrapped(name: str, text: str) -> str:
    """A module as a constant that holds what it exports; its other names stay its own."""
    exported = ", ".join(EXPORT.findall(text))
    inside = EXPORT.sub("", _linked(text))
    return f"const {name}_js = (() => {{\n{inside}\nreturn {{ {exported} }};\n}})();"


def _linked(text: str) -> str:
    return IMPORT.sub(r"const \1 = \2_js;", text)
