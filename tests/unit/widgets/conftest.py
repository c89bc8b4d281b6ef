"""What tests of live widgets need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import comm
import pytest

from tests.unit.widgets.feeds import PoolFeed, ended
from tests.unit.widgets.wires import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Widgets send to a :class:`Wire`; all are closed in the end, and so are their threads."""
    from ipywidgets import Widget

    monkeypatch.setattr(comm, "create_comm", Wire)
    yield
    Widget.close_all()
    assert ended(), "a ticker goes on"


@pytest.fixture
def pool(wires: None) -> PoolFeed:
    """A pool with half a minute of figures."""
    return PoolFeed()
