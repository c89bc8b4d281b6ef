"""A model of three tensors, and checkpoints of it as directories."""

from __future__ import annotations

import json

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["TinyForCausalLM"],
    "model_type": "tiny",
    "hidden_size": 4,
    "vocab_size": 6,
    "tie_word_embeddings": False,
}


def weights(**changed):
    """The model's tensors; ``changed`` ones replace them, None takes one away (``__`` is a dot)."""
    drawn = np.random.default_rng(0)
    tensors = {
        "embed.weight": drawn.normal(size=(6, 4)).astype(np.float32),
        "layer.weight": drawn.normal(size=(4, 4)).astype(np.float32),
        "lm_head.weight": drawn.normal(size=(6, 4)).astype(np.float32),
        "layer.steps": np.arange(3),
    }
    tensors |= {name.replace("__", "."): value for name, value in changed.items()}
    return {name: value for name, value in tensors.items() if value is not None}


def save(directory, tensors=None, *, file="model.safetensors", config=CONFIG, **changed_config):
    """Write a checkpoint; with ``config=None`` without its config."""
    directory.mkdir(exist_ok=True)
    save_file(weights() if tensors is None else tensors, directory / file)
    if config is not None:
        (directory / "config.json").write_text(json.dumps(config | changed_config))
    return directory


def write_index(directory, weight_map):
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
