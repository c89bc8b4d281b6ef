"""What can only be checked on a machine with GPUs, as a table: ``make gpu``.

Start at tensor parallel 1 and 2, generate, pauses in each mode, new weights in each mode, sleep and
wake, a profile, metrics. Each check says what it saw; one that fails does not stop the others. With
``--anyway`` it runs where there is no GPU, to check the script itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench import Workbench
from workbench.cluster.connection import connect, has_gpus
from workbench.models import resolve_model

if TYPE_CHECKING:
    from workbench.types import TokenOutput
    from workbench.weights import PauseMode

MODEL = os.environ.get("WORKBENCH_MODEL", "smollm2-135m")
MODES: tuple[PauseMode, ...] = ("keep", "abort", "wait")
PROMPT = list(range(100, 164))
SAMPLING = {"max_tokens": 256, "ignore_eos": True}

Check = Callable[[Workbench], str]


def generates(bench: Workbench) -> str:
    """Words, and token ids with log-probabilities."""
    reply = bench.generate("What is the capital of France?", max_tokens=16, temperature=0)
    assert len(reply.output.token_ids) == len(reply.output.log_probs) > 0
    return str(reply).replace("\n", " ")[:60]


def in_flight(bench: Workbench, act: Callable[[], str]) -> tuple[list[TokenOutput], str]:
    """What 16 generations give while ``act`` is done to the pool."""

    async def both() -> tuple[list[TokenOutput], str]:
        async with bench.client() as client:
            calls = [
                asyncio.ensure_future(
                    client.generate(f"gpu-{i}", prompt_ids=PROMPT, sampling_params=SAMPLING)
                )
                for i in range(16)
            ]
            await asyncio.sleep(0.5)
            told = await asyncio.to_thread(act)
            return await asyncio.gather(*calls), told

    return asyncio.run(both())


def pauses(mode: PauseMode) -> Check:
    """Stand still for a moment."""

    def check(bench: Workbench) -> str:
        def act() -> str:
            bench.pause(mode=mode)
            bench.resume()
            return "resumed"

        outputs, told = in_flight(bench, act)
        return f"{told}: {sum(len(output.token_ids) for output in outputs)} tokens"

    return check


def updates(mode: PauseMode, *, recompute: bool = False) -> Check:
    """The model's own weights, as a new version."""

    def check(bench: Workbench) -> str:
        source = resolve_model(MODEL)

        def act() -> str:
            update = bench.update_weights(source, mode=mode, recompute=recompute)
            assert not update.replaced, update
            return f"version {update.version}, stood still {update.stopped_s:.2f} s"

        outputs, told = in_flight(bench, act)
        assert all(len(o.token_ids) == len(o.log_probs) == 256 for o in outputs)
        assert len(set(bench.weight_versions().values())) == 1
        return told

    return check


def state_dict(bench: Workbench) -> str:
    """Weights through the object store."""
    from safetensors.torch import load_file

    state: dict[str, Any] = {}
    for file in sorted(resolve_model(MODEL).glob("*.safetensors")):
        state |= load_file(file)
    update = bench.update_weights(state)
    return f"transfer {update.transfer_s:.2f} s, stood still {update.stopped_s:.2f} s"


def sleeps(bench: Workbench) -> str:
    """Memory given back, as the device says, and taken again."""
    before = free_gib()
    slept = bench.sleep()
    given = free_gib() - before
    assert slept == bench.wake()
    generates(bench)
    if not any(slept.values()):
        return "nothing to give back"
    assert given > 1, f"{given:.1f} GiB came free"
    return f"{given:.1f} GiB came free"


def free_gib() -> float:
    """Of the devices' memory; 0 where there is none."""
    import torch

    if not torch.cuda.is_available():
        return 0.0
    free = [torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count())]
    return float(sum(free)) / 2**30


def profiles(bench: Workbench) -> str:
    """Traces, collected here."""
    with tempfile.TemporaryDirectory() as folder:
        bench.start_profile()
        generates(bench)
        files = bench.stop_profile(folder=folder)
        assert files
        return f"{len(files)} files, {sum(file.stat().st_size for file in files) >> 10} KiB"


def metrics(bench: Workbench) -> str:
    """vLLM's own figures."""
    pages = [urllib.request.urlopen(f"{a}/metrics").read() for a in bench.addresses()]
    assert all(b"vllm:num_requests_running" in page for page in pages)
    return f"{len(pages)} pages"


CHECKS: dict[str, Check] = {
    "generate": generates,
    **{f"pause {mode}": pauses(mode) for mode in MODES},
    **{f"weights {mode}": updates(mode) for mode in MODES},
    "weights keep, recompute": updates("keep", recompute=True),
    "weights from a state dict": state_dict,
    "sleep and wake": sleeps,
    "profile": profiles,
    "metrics": metrics,
}


def run(size: int) -> list[dict[str, object]]:
    """All checks on one replica of so many GPUs."""
    began_s = time.perf_counter()
    args: dict[str, Any] = {"enable_sleep_mode": True} if has_gpus() else {}
    args |= {"tensor_parallel_size": size} if size > 1 else {}
    rows: list[dict[str, object]] = []
    try:
        bench = Workbench(MODEL, 1, engine_args=args, progress=False)
    except Exception as error:  # noqa: BLE001 - a row of the table
        return [_row(size, "start", began_s, error)]
    with bench:
        rows.append(_row(size, "start", began_s, repr(bench)))
        for name, check in CHECKS.items():
            began_s = time.perf_counter()
            try:
                rows.append(_row(size, name, began_s, check(bench)))
            except Exception as error:  # noqa: BLE001 - a row of the table
                traceback.print_exc()
                rows.append(_row(size, name, began_s, error))
    return rows


def _row(size: int, name: str, began_s: float, told: str | Exception) -> dict[str, object]:
    failed = isinstance(told, Exception)
    text = f"{type(told).__name__}: {told}".splitlines()[0][:100] if failed else told
    seconds = round(time.perf_counter() - began_s, 2)
    return {"tp": size, "check": name, "ok": not failed, "s": seconds, "seen": text}


def main() -> None:
    """Run and print; fails where a check does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--anyway", action="store_true", help="also where there is no GPU")
    parser.add_argument("--tp", type=int, nargs="+", default=[1, 2], help="GPUs of a replica")
    options = parser.parse_args()
    connection = connect()
    try:
        if not (has_gpus() or options.anyway):
            sys.exit("there is no GPU here: nothing was checked")
        rows = [row for size in options.tp for row in run(size)]
    finally:
        connection.close()
    print(pd.DataFrame(rows).to_string(index=False))
    sys.exit(not all(row["ok"] for row in rows))


if __name__ == "__main__":
    main()
