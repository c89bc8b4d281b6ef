"""Torch, where it is installed: the package itself does without."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch")
