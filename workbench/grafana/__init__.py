"""A dashboard for Grafana: a pool's own figures beside those of its engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).with_name("pool.json")
"""The file, to be imported or provisioned."""


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana's HTTP API takes it."""
    model: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return model
