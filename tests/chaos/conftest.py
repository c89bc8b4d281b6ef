"""A line per scenario, shown at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

LINES = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line about this scenario."""

    def add(line: str) -> None:
        told = f"{request.node.name.removeprefix('test_')}: {line}"
        request.config.stash.setdefault(LINES, []).append(told)
        print(f"\n{told}")  # noqa: T201 - for whoever runs it with -s

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = terminalreporter.config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("chaos")
        for line in lines:
            terminalreporter.write_line(line)
