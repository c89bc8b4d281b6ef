"""What a turn costs at the balancer, beside verl's ``GlobalRequestLoadBalancer``.

Three parts, in which the sides alternate in one run:

* ``process``: acquire and release in one process with 8 to 4,096 replicas, one call each, the same
  turns on both sides and by the arguments that both take (no token counts). Measured in CPU time,
  which other work on the machine disturbs least.
* ``ray``: turns through Ray with one client process and with eight, as fast as they go, and turns
  that last (``held``); see :mod:`benchmarks.balancer_ray` for what is equal there and what is not.
* ``bytes_per_session``: the memory of a million sessions of ours.
"""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers import verl_balancer_class
from benchmarks.report import arguments, emit
from benchmarks.turns import session_id, turns
from workbench.balancer import GlobalRequestLoadBalancer

if TYPE_CHECKING:
    import argparse

SIZES = (8, 64, 1024, 4096)
CHUNK = 4000
"""Turns that one side plays before the other does; fewer where verl takes long."""

SESSIONS = 1_000_000
SESSIONS_REPLICAS = 4096

Side = Callable[[list[str]], float]


def our_side(replicas: int) -> Side:
    """Turns per second of CPU time."""
    balancer = GlobalRequestLoadBalancer({f"replica-{i}": i for i in range(replicas)})
    acquire, release = balancer.acquire_server, balancer.release_server

    def play(sessions: list[str]) -> float:
        started = time.process_time()
        for session in sessions:
            release(acquire(session))
        return len(sessions) / (time.process_time() - started)

    return play


def verl_side(replicas: int) -> Side:
    """The same with verl's; it releases by server id."""
    balancer = verl_balancer_class()({f"replica-{i}": i for i in range(replicas)})
    acquire, release = balancer.acquire_server, balancer.release_server

    def play(sessions: list[str]) -> float:
        started = time.process_time()
        for session in sessions:
            server_id, _ = acquire(session)
            release(server_id)
        return len(sessions) / (time.process_time() - started)

    return play


def in_process(replicas: int, rounds: int) -> dict[str, float]:
    """Medians over chunks that alternate; the ratio is the median of the chunks' ratios."""
    chunk = CHUNK if replicas < 1000 else CHUNK // 4
    sequence = turns(chunk * (rounds + 1))
    ours, verl = our_side(replicas), verl_side(replicas)
    pairs = []
    for number in range(rounds + 1):
        sessions = sequence[number * chunk : (number + 1) * chunk]
        pair = (ours(sessions), verl(sessions)) if number % 2 else (verl(sessions), ours(sessions))
        if number:  # the first warms up
            pairs.append(pair if number % 2 else pair[::-1])
    return {
        "ours_turns_per_s": round(statistics.median(ours for ours, _ in pairs)),
        "verl_turns_per_s": round(statistics.median(verl for _, verl in pairs)),
        "ratio": round(statistics.median(ours / verl for ours, verl in pairs), 3),
    }


def bytes_per_session() -> float:
    """Growth of this process by a million sessions of three turns each, all idle."""
    balancer = GlobalRequestLoadBalancer({f"replica-{i}": i for i in range(SESSIONS_REPLICAS)})
    rng = random.Random(0)
    balancer.release_server(balancer.acquire_server("warm", prompt_tokens=1))
    gc.collect()
    before = _resident_bytes()
    for _ in range(SESSIONS):
        session = session_id(rng)
        for turn in range(3):
            tokens = 300 + turn * rng.randrange(300, 900)
            balancer.release_server(balancer.acquire_server(session, prompt_tokens=tokens))
    gc.collect()
    assert balancer.snapshot().sessions == SESSIONS + 1
    return (_resident_bytes() - before) / SESSIONS


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def in_fresh_process(part: str) -> float:
    """A part that must not inherit anybody's memory."""
    command = [sys.executable, "-m", "benchmarks.balancer", "--part", part]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def through_ray(rounds: int) -> dict[str, Any]:
    """See :mod:`benchmarks.balancer_ray`."""
    from benchmarks import balancer_ray
    from workbench.cluster.connection import connect

    connection = connect()
    try:
        return balancer_ray.measure(rounds)
    finally:
        connection.close()


def parse() -> argparse.Namespace:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--part", choices=("memory",), help="one part alone, as a number")
    return parser.parse_args()


def main() -> None:
    """Command line."""
    options = parse()
    if options.part:
        print(bytes_per_session())
        return
    figures = {
        "process": {str(size): in_process(size, 4 * options.rounds + 1) for size in SIZES},
        "ray": through_ray(options.rounds),
        "bytes_per_session": round(in_fresh_process("memory"), 1),
        "sessions": SESSIONS,
    }
    emit(figures)


if __name__ == "__main__":
    main()
