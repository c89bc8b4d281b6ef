"""Two real replicas, harmed: no rollout notices more than a pause.

float32 and greedy: a turn is then the same, to the token, on whichever replica it is sampled, in
however many attempts, and under new weights that are the old ones.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos import harm
from tests.chaos.conversation import begin, check_rows
from tests.chaos.pools import pool, rounds, settled
from tests.chaos.scenario import moments, played
from workbench.errors import CheckpointError
from workbench.models import resolve_model
from workbench.supervision import SupervisionConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from workbench import Workbench

    Tell = Callable[[str], None]

pytestmark = [pytest.mark.chaos, pytest.mark.ray, pytest.mark.vllm]

TOKENS = 8
SEEDS = range(rounds(1))
WATCHED = SupervisionConfig(hang_s=12.0, max_restarts=1000, backoff_s=0.0)


@pytest.fixture(scope="module")
def whole() -> Iterator[Workbench]:
    with pool(2, engine_args={"dtype": "float32"}, supervision=WATCHED) as bench:
        yield bench


@pytest.fixture
def bench(whole: Workbench) -> Workbench:
    settled(whole)
    return whole


@pytest.fixture(scope="module")
def calm(whole: Workbench, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What the rollouts are when nothing happens to the pool."""
    batch = begin(whole, tmp_path_factory.mktemp("calm") / "turns", tokens=TOKENS)
    rows = batch.result()
    check_rows(batch, rows)
    return [row.segments[0].response_ids for row in rows]


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "turns"


def check_exact(rows: list[Any], calm: list[list[int]]) -> None:
    assert [row.segments[0].response_ids for row in rows] == calm


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [harm.kill_engine, harm.freeze_engine])
def test_an_engine(
    bench: Workbench, calm: list[list[int]], diary: Path, tell: Tell, how: Any, seed: int
) -> None:
    rng, (at,) = moments(f"{how.__name__} {seed}")
    strike = partial(how, bench, harm.one(bench, rng))
    outcome = played(bench, diary, [(at, strike)], tokens=TOKENS)
    assert (outcome.replaced, outcome.resumed > 0) == (1, True)
    check_exact(outcome.rows, calm)
    tell(str(outcome))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["keep", "abort"])
def test_weights_twice_and_broken_ones_between(
    bench: Workbench,
    calm: list[list[int]],
    diary: Path,
    tell: Tell,
    broken: Path,
    mode: Any,
    seed: int,
) -> None:
    _, at = moments(f"weights {mode} {seed}", 3)
    model = resolve_model(bench.config.model)
    version = max(bench.weight_versions().values())

    def update() -> str:
        told = bench.update_weights(model, mode=mode)
        assert not told.replaced
        return f"version {told.version} ({mode}), engines stood for {told.stopped_s:.1f} s"

    def refused() -> str:
        with pytest.raises(CheckpointError, match="NaN or infinite"):
            bench.update_weights(broken, mode=mode)
        return "NaN refused"

    strikes = list(zip(at, [update, refused, update], strict=True))
    outcome = played(bench, diary, strikes, tokens=TOKENS)
    assert outcome.replaced == 0
    assert outcome.versions == {version, version + 1, version + 2}
    assert (outcome.resumed > 0) == (mode == "abort")
    check_exact(outcome.rows, calm)
    tell(str(outcome))


@pytest.fixture(scope="module")
def broken(whole: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pool's own model, but for one number that is none."""
    folder = tmp_path_factory.mktemp("broken") / "model"
    shutil.copytree(resolve_model(whole.config.model), folder)
    with next(folder.glob("*.safetensors")).open("r+b") as weights:
        header = int.from_bytes(weights.read(8), "little")
        weights.seek(8 + header + 2000)
        weights.write(b"\xc0\x7f")  # of a bfloat16, the bytes of a NaN
    return folder
