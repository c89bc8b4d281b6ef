"""Text from data, fit to be shown. Pure.

Whatever comes from a model, a tool or a user is shown as the characters that it is: what would
move, hide or turn other text around gets a visible name.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence

NAME_LENGTH = 28
"""Characters of a name that there is room for."""
PROSE_LENGTH = 160
"""Characters of an error, of arguments or of a result in a table."""

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that have no shape of their own."""
JOINERS = "\u200c\u200d"
"""They have none either, but scripts and emoji need them."""


def short(text: str, limit: int = NAME_LENGTH) -> str:
    """A name in one line; where it is too long the middle is left out, since ends tell apart."""
    if len(text) > limit:
        tail = limit // 2
        text = f"{text[: limit - tail - 1]}…{text[-tail:]}"
    return visible(text)


def prose(text: str, limit: int = PROSE_LENGTH) -> str:
    """A text in one line, its end left out where it is too long."""
    if len(text) > limit:
        text = f"{text[: limit - 1]}…"
    return visible(text)


def passage(text: str, limit: int) -> str:
    """A text with its lines; what is left out of it is counted."""
    left = len(text) - limit
    more = f"\n[… {left:,} more characters]" if left > 0 else ""
    return "\n".join(visible(line) for line in text[:limit].split("\n")) + more


def visible(text: str) -> str:
    """The text with a visible name for each character that has no shape."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or unicodedata.category(character) not in HIDDEN
        else _named(character)
        for character in text
    )


def _named(character: str) -> str:
    code = ord(character)
    if character in JOINERS:
        return character
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ␊, ␛, …
    return "␡" if code == 0x7F else f"[U+{code:04X}]"


def counted(number: int, noun: str) -> str:
    """``1 token``, ``1,024 tokens``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def content_text(content: object) -> str:
    """A message's content as text; parts that are not text are shown as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(_part_text(part) for part in content)
    return json_text(content)


def _part_text(part: object) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return json_text(part)


def extra_text(value: object) -> str:
    """What a loop adds of its own; of tools' specs their names."""
    specs = value if isinstance(value, list | tuple) else ()
    functions = [spec.get("function") if isinstance(spec, Mapping) else None for spec in specs]
    if functions and all(isinstance(function, Mapping) for function in functions):
        return ", ".join(str(function.get("name")) for function in functions if function)
    return json_text(value)


def json_text(value: object) -> str:
    """A value as JSON, text as it is."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError):  # such as keys that are no text, or a value within itself
        return repr(value)
