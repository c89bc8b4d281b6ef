"""What surrounds engines, harmed: every rollout completes with the tokens it would have had."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.chaos import harm
from tests.chaos.harm import FaultKind
from tests.chaos.pools import rounds, settled, simulated
from tests.chaos.scenario import moments, played

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from workbench import Workbench

    Tell = Callable[[str], None]

pytestmark = [pytest.mark.chaos, pytest.mark.ray]

TOKENS = 60
"""Of each turn: a second and a bit, with steps of 20 ms."""
SEEDS = range(rounds(1))


@pytest.fixture(scope="module")
def whole() -> Iterator[Workbench]:
    """Two replicas that are replaced whenever something happens to them."""
    with simulated(2, workers=2) as bench:
        yield bench


@pytest.fixture
def bench(whole: Workbench) -> Workbench:
    whole.scale(2)  # whatever the test before left behind
    settled(whole)
    return whole


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "turns"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_is_killed(bench: Workbench, diary: Path, tell: Tell, seed: int) -> None:
    rng, (at,) = moments(f"actor {seed}")
    strike = partial(harm.kill_actor, bench, harm.one(bench, rng))
    outcome = played(bench, diary, [(at, strike)], tokens=TOKENS)
    assert (outcome.replaced, outcome.resumed > 0) == (1, True)
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rollout_worker_is_killed(bench: Workbench, diary: Path, tell: Tell, seed: int) -> None:
    rng, (at,) = moments(f"worker {seed}")

    def strike() -> str:
        harm.kill(rng.choice(sorted(harm.workers())))
        return "one of two workers killed"

    outcome = played(bench, diary, [(at, strike)], tokens=TOKENS)  # and no rollout is lost
    assert outcome.replaced == outcome.resumed == 0
    assert len(harm.workers()) == 2
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_balancer_is_killed(bench: Workbench, diary: Path, tell: Tell, seed: int) -> None:
    _, (at,) = moments(f"balancer {seed}")
    epoch = bench.routing.snapshot().epoch
    outcome = played(bench, diary, [(at, partial(harm.kill_balancer, bench))], tokens=TOKENS)
    assert bench.routing.snapshot().epoch == epoch + 1
    assert outcome.replaced == 0
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("what", ["actor", "engine"])
def test_a_replica_hangs(bench: Workbench, diary: Path, tell: Tell, what: str, seed: int) -> None:
    rng, (at,) = moments(f"hang {seed}")
    replica_id = harm.one(bench, rng)
    strike = (
        partial(harm.freeze_actor, bench, replica_id)
        if what == "actor"
        else partial(harm.inject, bench, replica_id, FaultKind.HANG)
    )
    outcome = played(bench, diary, [(at, strike)], tokens=TOKENS)
    assert (outcome.replaced, outcome.resumed > 0) == (1, True)
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pool_grows_and_shrinks(bench: Workbench, diary: Path, tell: Tell, seed: int) -> None:
    rng, at = moments(f"scale {seed}", 2)
    drain_s = rng.choice([0.0, 1.0, 60.0])

    def grow() -> str:
        return f"{len(bench.scale(3))} replicas"

    def shrink() -> str:
        return f"{len(bench.scale(1, drain_s=drain_s))} replica within {drain_s:g} s"

    strikes = [(at[0], grow), (at[1], shrink)]
    outcome = played(bench, diary, strikes, tokens=TOKENS, replicas=1, witnesses=0)
    assert outcome.replaced == 0
    bench.scale(2)
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_that_one_replica_cannot_load(
    bench: Workbench, diary: Path, tell: Tell, tmp_path: Path, seed: int
) -> None:
    rng, at = moments(f"load {seed}", 3)
    version = max(bench.weight_versions().values())
    broken = harm.one(bench, rng)
    harm.inject(bench, broken, FaultKind.LOAD, after_tokens=None)

    def update() -> str:
        told = bench.update_weights(tmp_path, mode=rng.choice(["keep", "abort"]))
        return f"version {told.version} ({told.mode}), replaced {list(told.replaced)}"

    outcome = played(bench, diary, [(turns, update) for turns in at], tokens=TOKENS)
    assert (outcome.replaced, outcome.resumed > 0) == (1, True)
    assert set(bench.weight_versions().values()) == {version + 3}
    assert outcome.versions <= set(range(version, version + 4))
    assert len(outcome.versions) > 1
    tell(str(outcome))
