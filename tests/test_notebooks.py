"""Notebooks as a reader finds them: with output, with pictures, small, without widget state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("recipes/*.ipynb")])


def test_there_are_notebooks_and_recipes():
    assert {path.parent.name for path in NOTEBOOKS} == {"notebooks", "recipes"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_saved_notebook_shows_its_results_to_somebody_who_only_reads_it(path):
    notebook = json.loads(path.read_text())
    assert "widgets" not in notebook["metadata"]
    assert path.stat().st_size < 500_000
    outputs = [o for cell in notebook["cells"] for o in cell.get("outputs", ())]
    assert not [o for o in outputs if o["output_type"] == "error"]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "image/png" in kinds
    assert not kinds & {"application/javascript", "image/svg+xml"}
