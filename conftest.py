"""Time limits, and which tests need the machine to themselves.

The limit in pyproject.toml is for unit tests; what starts more gets more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "tests"

LONG_S = 600
"""For a test that starts engines or a cluster, its fixtures included."""

LONG_MARKERS = ("gpu", "ray", "slow", "vllm")

ALONE_MARKERS = ("gpu", "ray", "vllm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        _limit(item)
        if _is_alone(item):
            item.add_marker(pytest.mark.alone)


def _limit(item: pytest.Item) -> None:
    if item.get_closest_marker("timeout") is not None:
        return
    if item.path.suffix == ".ipynb":
        item.add_marker(pytest.mark.timeout(0))  # nbval's own cell timeout holds
    elif any(item.get_closest_marker(name) for name in LONG_MARKERS):
        item.add_marker(pytest.mark.timeout(LONG_S))


def _is_alone(item: pytest.Item) -> bool:
    """A unit test never is; a notebook, a browser, a cluster and an engine always are."""
    above = item.path.parents
    if TESTS / "unit" in above:
        return False
    if TESTS not in above or TESTS / "ui" in above:
        return True
    return any(item.get_closest_marker(name) for name in ALONE_MARKERS)
