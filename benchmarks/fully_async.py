"""Fully-async rollouts beside synchronous batches, on two real vLLM replicas.

One step is 64 rollouts, 8 of each of 8 tasks, with lengths from a log-normal distribution (median
48 tokens, 95th percentile 200) that are the same in every mode; then a learner that sleeps for 30 %
of the time that a synchronous step takes to generate, the mean of the same steps, played once
before; then new weights, the model's own from its directory.

* ``sync``: a batch, the learner, the weights, one after the other.
* ``stream``: a stream with bound 0: nothing is older than the learner's version, but it takes the
  groups one by one as they end, and sleeps an eighth each time.
* ``keep``: the same with bound 1, so that the next step's groups are played meanwhile; requests
  are frozen while weights are changed, and go on.
* ``abort``: the same; requests are ended, and resumed under the new weights.
* ``capacity``: as ``keep``, with the bound as verl and AReaL have it: what may exist is bounded,
  and nothing is refused for its age, so that no batch waits for a long rollout.

The first step of each run fills the pool and is not counted; the order of the modes turns from
round to round. *Idle* is the share of time in which a replica's engine had neither running nor
waiting requests, looked at every 200 ms, the mean of the replicas. Short rollouts end first, so
rollouts and tokens are told apart: ``speedup_tokens`` is of the tokens of rollouts that a learner
got. A learner that sleeps leaves the cores to the replicas; one that computes on them would not.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.fully_async_work import (
    GROUPS,
    MEDIAN_TOKENS,
    P95_TOKENS,
    FixedLengths,
    Measured,
    Meter,
    N,
    longest,
    make_tasks,
    steps_of,
)
from benchmarks.report import arguments, emit
from workbench import Workbench
from workbench.models import resolve_model

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "smollm2-135m"
REPLICAS = 2
LEARN_SHARE = 0.3
STEPS = 5
"""Of each run, the first among them, which is not counted."""
MORE_STEPS = 3
"""Of tasks, so that no stream comes to its end while it is measured."""
SAMPLING = {"temperature": 1.0}
QUIET_S = 30.0
PATIENCE_S = 120.0

TAKEN = {"required_samples": 1, "trigger_parameter_sync_step": GROUPS}
STREAMS: dict[str, dict[str, Any]] = {
    "stream": {**TAKEN, "max_staleness": 0},
    "keep": {**TAKEN, "max_staleness": 1, "update_mode": "keep"},
    "abort": {**TAKEN, "max_staleness": 1, "update_mode": "abort"},
    "capacity": {**TAKEN, "max_staleness": None, "staleness_threshold": 1, "update_mode": "keep"},
}
MODES = ("sync", *STREAMS)


class Bout:
    """The modes on one pool, one after the other.

    Args:
        bench: the pool.
        steps: of each run.
    """

    def __init__(self, bench: Workbench, steps: int) -> None:
        self._bench = bench
        self._steps = steps
        self._weights = str(resolve_model(MODEL))
        self.generate_s = self._calibrated()
        self.learn_s = LEARN_SHARE * self.generate_s

    def _calibrated(self) -> float:
        """Seconds that a synchronous step generates, of the steps that count in the first round."""
        took = []
        for tasks in steps_of(make_tasks(0, self._steps, "warm-up")):
            began_s = time.perf_counter()
            self._batch(tasks)
            took.append(time.perf_counter() - began_s)
        return statistics.mean(took[1:])  # the first one warms the engines

    def _batch(self, tasks: list[dict[str, Any]]) -> list[Any]:
        rollout = self._bench.rollout(tasks, FixedLengths, n=N, sampling_params=SAMPLING)
        return rollout.result()

    def run(self, mode: str, seed: int) -> Measured:
        """One mode, once."""
        tasks = make_tasks(seed, self._steps + MORE_STEPS, f"{mode}-{seed}")
        measured = self._sync(tasks) if mode == "sync" else self._stream(tasks, STREAMS[mode])
        self._until_quiet()
        return measured

    def _sync(self, tasks: list[dict[str, Any]]) -> Measured:
        meter = Meter(self._bench)
        for step in range(self._steps):
            if step == 1:
                meter.begin()
            rows = self._batch(tasks[step * GROUPS : (step + 1) * GROUPS])
            time.sleep(self.learn_s)
            meter.add(rows)
            self._bench.update_weights(self._weights)
        return meter.end()

    def _stream(self, tasks: list[dict[str, Any]], rules: Mapping[str, Any]) -> Measured:
        meter = Meter(self._bench)
        stream = self._bench.stream(tasks, FixedLengths, n=N, sampling_params=SAMPLING, **rules)
        try:
            for step in range(self._steps):
                if step == 1:
                    meter.begin()
                for _ in range(GROUPS):
                    batch = stream.get_batch(timeout_s=PATIENCE_S)
                    time.sleep(self.learn_s / GROUPS)
                    meter.add(batch.trajectories)
                    stream.commit()
                stream.publish(self._weights)
            return meter.end()
        finally:
            stream.stop()

    def _until_quiet(self) -> None:
        """No request of the last mode is left for the next one."""
        until = time.monotonic() + QUIET_S
        while True:
            pool = self._bench.snapshot()
            if not any(r.engine and (r.engine.running or r.engine.waiting) for r in pool.replicas):
                return
            if time.monotonic() > until:
                raise RuntimeError(f"requests are left after {QUIET_S:g} s: {pool}")
            time.sleep(0.1)


def measure(rounds: int, steps: int, modes: tuple[str, ...], *, quiet: bool) -> dict[str, Any]:
    """Every mode in every round, in an order that turns by one from round to round."""
    with Workbench(MODEL, REPLICAS, progress=False) as bench:
        bout = Bout(bench, steps)
        raw: dict[str, list[Measured]] = {mode: [] for mode in modes}
        for number in range(rounds):
            turned = number % len(modes)
            for mode in [*modes[turned:], *modes[:turned]]:
                measured = bout.run(mode, number)
                raw[mode].append(measured)
                if not quiet:
                    print(f"round {number}, {mode}: {measured.figures()}", file=sys.stderr)
    return {
        "modes": {mode: together(runs).figures() for mode, runs in raw.items()},
        "raw": {mode: [run.figures() for run in runs] for mode, runs in raw.items()},
        "generate_s": round(bout.generate_s, 3),
        "learn_s": round(bout.learn_s, 3),
        "longest_tokens": statistics.mean(longest(make_tasks(0, steps, ""))),
    }


def together(runs: list[Measured]) -> Measured:
    """All runs of a mode as one."""
    total = Measured()
    for run in runs:
        total += run
    return total


def compared(modes: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The figures that have a bar."""
    keep, sync = modes["keep"], modes["sync"]
    return {
        "speedup": round(keep["trajectories_per_s"] / sync["trajectories_per_s"], 3),
        "speedup_tokens": round(keep["tokens_per_s"] / sync["tokens_per_s"], 3),
        "idle_share": keep["idle_share"],
    }


def queue_rate() -> float:
    """Rollouts per second through the group queue, measured by its own benchmark."""
    command = [sys.executable, "-m", "benchmarks.group_queue", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return float(told["queue_trajectories_per_s"])


def main() -> None:
    """Command line."""
    parser = arguments(__doc__)
    parser.set_defaults(rounds=1)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each run; the first fills")
    parser.add_argument("--modes", default=",".join(MODES), help="names with commas between")
    parser.add_argument("--no-queue", action="store_true", help="leave the queue's figure out")
    options = parser.parse_args()
    modes = tuple(options.modes.split(","))
    if unknown := set(modes) - set(MODES):
        raise SystemExit(f"no such mode: {sorted(unknown)}; there are {list(MODES)}")
    figures = measure(options.rounds, options.steps, modes, quiet=options.json)
    if {"keep", "sync"} <= set(modes):
        figures |= compared(figures["modes"])
    if not options.no_queue:
        figures["queue_trajectories_per_s"] = queue_rate()
    workload = {
        "model": MODEL,
        "replicas": REPLICAS,
        "groups": GROUPS,
        "rollouts_per_group": N,
        "median_tokens": MEDIAN_TOKENS,
        "p95_tokens": P95_TOKENS,
        "learn_share": LEARN_SHARE,
        "steps": options.steps,
        "rounds": options.rounds,
    }
    emit({**figures, "workload": workload})


if __name__ == "__main__":
    main()
