"""Time limits. The one in pyproject.toml is for unit tests; what starts more gets more."""

from __future__ import annotations

import pytest

LONG_S = 600
"""For a test that starts engines or a cluster, its fixtures included."""

LONG_MARKERS = ("gpu", "ray", "slow", "vllm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is not None:
            continue
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.timeout(0))  # nbval's own cell timeout holds
        elif any(item.get_closest_marker(name) for name in LONG_MARKERS):
            item.add_marker(pytest.mark.timeout(LONG_S))
