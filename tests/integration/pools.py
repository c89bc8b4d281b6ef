"""Pools in processes of their own, and scripts that come to them from others."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import textwrap
from typing import Any, Self

from tests.integration.scraping import until
from workbench import Workbench

OWNER = """
    import json, sys
    from workbench import Workbench

    args = {"vocab_size": 49_152, "step_s": 0.005}
    bench = Workbench(
        "smollm2-135m", 2, name=sys.argv[1], engine="simulated", engine_args=args, sample_s=0.2,
        progress=False,
    )
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        if not line.strip():
            break
        print(json.dumps(eval(line)), flush=True)
    bench.close()
"""


class Owner:
    """A process with an open pool of simulated engines, which it calls ``bench``."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            script(OWNER, name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        assert self._answer() == "ready"

    def ask(self, expression: str) -> Any:
        """What ``expression`` is in that process."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the owner ended"
        return json.loads(line)

    def kill(self) -> None:
        """At once, as a crash would."""
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        """Close the pool and end the process."""
        if self.process.poll() is None:
            self.process.communicate("\n", timeout=120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def script(text: str, *args: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text), *args]


def told(text: str, env: dict[str, str], *args: str) -> Any:
    """What a script in a process of its own prints last, as JSON."""
    done = subprocess.run(
        script(text, *args), capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


HELLO = {"role": "user", "content": "Say hello."}


def playing_pool(replicas: int, workers: int) -> Workbench:
    """A pool of this process with worker processes; its engines are simulated, and never stop."""
    args = {"vocab_size": 49_152, "step_s": 0.002, "stop_token": -1}
    return Workbench(
        "smollm2-135m",
        replicas,
        engine="simulated",
        engine_args=args,
        workers=workers,
        progress=False,
    )


until_played = functools.partial(until, wait_s=60.0)
"""A worker that takes another's place reads its tokenizer first."""
