"""What a reader can ask of a picture: to search, to sort, to filter, to turn pages. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from widgets.pictures.fields import Field, Option
from workbench.types import EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping

PER_PAGE = 50
"""Sessions on a page."""

LONGEST_WISH = 200
"""Characters of what a reader types; ids are shorter."""


ORDERS = {
    "came": "order of arrival",
    "turns": "most turns",
    "in_flight": "most in flight",
    "prompt_tokens": "most prompt tokens",
    "sampled_tokens": "most sampled tokens",
    "moves": "most moves",
    "idle_s": "longest idle",
    "session_id": "id",
}
"""How sessions can be sorted; names of columns, but for the first."""

CHANGES = "changes"
TURNS = frozenset({EventKind.ACQUIRED, EventKind.RELEASED})
"""Events that say only that the pool is at work."""

KINDS = {
    CHANGES: "everything but turns",
    "all": "everything",
    **{str(kind): str(kind).replace("_", " ") for kind in EventKind},
}

FIELDS = {
    "sessions": (
        Field("find", "search", "search by id"),
        Field("order", "choice", "sorted by", tuple(Option(*pair) for pair in ORDERS.items())),
        Field("page", "pages", "page"),
    ),
    "events": (Field("kinds", "choice", "show", tuple(Option(*pair) for pair in KINDS.items())),),
}
"""By the picture's name."""


def wishes_of(plot: str, values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is asked of a picture, sorted by name; what makes no sense counts as not asked."""
    found = []
    for field in FIELDS.get(plot, ()):
        value = str(values.get(field.name, ""))[:LONGEST_WISH]
        if field.kind == "choice" and value not in {option.value for option in field.options}:
            value = field.options[0].value
        if field.kind == "pages":
            value = value if value.isascii() and value.isdigit() else "0"
        found.append((field.name, value))
    return tuple(sorted(found))
