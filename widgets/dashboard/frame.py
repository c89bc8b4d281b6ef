"""A dashboard's page inside a cell."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Frame:
    """A page to be shown in a cell, with a link that stays where frames are not shown."""

    address: str
    title: str
    height: int

    def __repr__(self) -> str:
        return f"Frame({self.address!r})"

    def _repr_html_(self) -> str:
        address, title = escape(self.address), escape(self.title)
        return (
            f'<div><a href="{address}" target="_blank" rel="noopener">{title}</a></div>'
            f'<iframe src="{address}" title="{title}" width="100%" height="{self.height}" '
            'style="border: 0" loading="lazy" allow="clipboard-write"></iframe>'
        )
