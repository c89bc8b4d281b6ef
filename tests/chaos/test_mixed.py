"""Several things at once, at seeded moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.mixing import Mix
from tests.chaos.pools import rounds, settled, simulated
from tests.chaos.scenario import played

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from workbench import Workbench

pytestmark = [pytest.mark.chaos, pytest.mark.ray]

TOKENS = 60
REPLICAS = 3


@pytest.fixture(scope="module")
def whole() -> Iterator[Workbench]:
    with simulated(REPLICAS, workers=2) as bench:
        yield bench


@pytest.fixture
def bench(whole: Workbench) -> Workbench:
    whole.scale(REPLICAS)  # whatever the test before left behind
    settled(whole, REPLICAS)
    return whole


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_a_mix(bench: Workbench, tmp_path: Path, tell: Callable[[str], None], seed: int) -> None:
    with Mix(bench, seed, tmp_path) as mix:

        def afterwards() -> str:
            said = mix.finish()
            bench.scale(REPLICAS)
            return f"then [{'; '.join(said)}]"

        outcome = played(
            bench,
            tmp_path / "turns",
            mix.strikes(),
            tokens=TOKENS,
            lost=True,
            replicas=REPLICAS,
            witnesses=0,
            afterwards=afterwards,
        )
    tell(str(outcome))
