"""Names that nobody else has."""

from __future__ import annotations

import os
import random

_random = random.Random(os.urandom(16))
"""Seeded from the system once: asking it for each name takes a call that lets go of the
interpreter, and with other threads at work it takes milliseconds to get it back."""

os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(16)))


def new_id() -> str:
    """32 hexadecimal digits."""
    return f"{_random.getrandbits(128):032x}"
