"""Real replicas, started once for this folder and shared.

float32: greedy tokens are then the same alone and in a batch, and log-probabilities can be compared
with another implementation's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workbench import Workbench


@pytest.fixture(scope="package")
def bench() -> Iterator[Workbench]:
    from workbench import Workbench

    with Workbench("smollm2-135m", 2, engine_args={"dtype": "float32"}, progress=False) as pool:
        yield pool
