"""A configuration is refused by the name of its field."""

from __future__ import annotations

import pytest

from workbench.errors import ConfigError
from workbench.learner.config import LearnerConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", 0.0),
        ("lr", float("nan")),
        ("lr", "fast"),
        ("betas", (0.9, 1.0)),
        ("betas", 0.9),
        ("weight_decay", -0.1),
        ("clip_norm", 0),
        ("importance_cap", 0.5),
        ("temperature", 0.0),
        ("average", "batch"),
        ("dtype", "float16"),
        ("device", "tpu"),
        ("threads", 0),
        ("threads", True),
        ("tokens_per_pass", 1.5),
        ("scale_advantages", 1),
    ],
)
def test_what_cannot_be_is_refused(field, value):
    with pytest.raises(ConfigError, match=rf"^{field}: .*\(allowed: "):
        LearnerConfig(**{field: value})
