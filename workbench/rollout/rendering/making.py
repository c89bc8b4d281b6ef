"""The renderer of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.rollout.rendering.known import KnownRenderer
from workbench.rollout.rendering.template import TemplateRenderer

if TYPE_CHECKING:
    from workbench.rollout.rendering.protocol import Renderer


def make_renderer(model_dir: str, reference: str = "") -> Renderer:
    """The renderer of a model.

    Args:
        model_dir: a directory with a tokenizer.
        reference: the name it was asked for by; ``renderers`` knows models by their hub id.

    Raises:
        ConfigError: the model has no chat format that can be used here.
    """
    from renderers.base import MODEL_RENDERER_MAP
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    if reference in MODEL_RENDERER_MAP:
        return _known(tokenizer, reference)
    if not tokenizer.chat_template:
        raise ConfigError("model", f"{model_dir!r} has no chat template", allowed="a chat model")
    return TemplateRenderer(tokenizer, end_ids(Path(model_dir)))


def _known(tokenizer: Any, reference: str) -> KnownRenderer:
    try:
        return KnownRenderer(tokenizer, reference)
    except Exception as error:  # each renderer asks for other things, some for files from outside
        raise ConfigError(
            "model",
            f"no renderer can be made for {reference!r}: {error}",
            allowed="a tokenizer with that model's tokens",
        ) from error


def end_ids(model_dir: Path) -> list[int]:
    """What the model's generation configuration lets a turn end with."""
    path = model_dir / "generation_config.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text()).get("eos_token_id")
    return found if isinstance(found, list) else [] if found is None else [found]
