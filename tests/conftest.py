"""Real replicas, started once and shared by all tests that do not break any.

float32: greedy tokens are then the same alone and in a batch, and log-probabilities can be compared
with another implementation's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench import Workbench


REAL = {Path(__file__).parent / name for name in ("chaos", "integration", "ui")}
"""Whose tests have processes of their own, on a machine that may have other things to do."""


REAL_TIMEOUT_S = 300
"""For one of them, the start of what it needs included."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with processes that fails is run once more; the closing lines name it: RERUN."""
    for item in items:
        if REAL & set(item.path.parents):
            item.add_marker(pytest.mark.flaky(reruns=1))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(REAL_TIMEOUT_S))


settings.register_profile("any machine", deadline=None)  # a busy one is no failure
settings.load_profile("any machine")


@pytest.fixture(scope="session")
def bench() -> Iterator[Workbench]:
    """The pool that ``WORKBENCH_POOL`` names, which saves its start; else one of their own."""
    from workbench import Workbench

    known = os.environ.get("WORKBENCH_POOL")
    if known:
        pool = Workbench(name=known, progress=False)
    else:
        name = f"tests-{os.getpid()}"
        pool = Workbench(
            "smollm2-135m",
            2,
            name=name,
            engine_args={"dtype": "float32"},
            openai_routes=True,
            oversubscribe=True,  # a test lets it grow
            progress=False,
        )
    with pool:
        assert pool.attached == bool(known), f"no pool {known!r} runs"
        yield pool
