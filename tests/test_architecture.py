"""Budgets and promises about the shape of the code."""

from __future__ import annotations

import ast
import gc
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "workbench").rglob("*.py")) + sorted((ROOT / "widgets").rglob("*.py"))
HEAVY = ("ray", "vllm", "torch", "pandas", "panel", "numpy", "transformers", "ipywidgets")


def test_importing_workbench_loads_nothing_heavy() -> None:
    code = f"import sys, workbench; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_files_are_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCES}
    assert not [str(path) for path, length in lengths.items() if length > 400]
    assert statistics.median(lengths.values()) <= 130


def test_functions_are_short() -> None:
    """Signature and docstring are not counted: they are what one reads instead of the body."""
    long = []
    gc.collect()  # CPython 3.11 parses nothing while something that is collected parses, too
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 > 40:
                    long.append(f"{path.name}:{node.name}")
    assert not long
