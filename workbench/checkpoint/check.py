"""Whether a checkpoint may go into engines that run a model: same architecture, tensors, values.

An engine that meets a wrong one while it loads is lost, and so are its requests. What is looked at
is cheap (headers, and every value once at several GB/s) beside what a load costs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.headers import headers
from workbench.checkpoint.parts import outline
from workbench.checkpoint.values import FLOATS, check_file_values
from workbench.checkpoint.words import dimensions, listing, plural
from workbench.errors import CheckpointError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from workbench.checkpoint.headers import Described, TensorInfo

ARCHITECTURE = (
    "architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size",
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "moe_intermediate_size", "num_experts", "num_local_experts", "n_routed_experts",
    "num_experts_per_tok", "tie_word_embeddings",
)  # fmt: skip
"""What two ``config.json`` must agree on, where both say it. An engine keeps its own, so another
value here would be a wrong model even if every shape fits."""

LM_HEAD = "lm_head.weight"
"""With tied embeddings it is the embedding: nobody needs it and everybody may write it."""

COMPUTED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")
"""Older checkpoints hold these. They are no weights, and engines compute them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that was found good."""

    directory: Path
    num_tensors: int
    size_bytes: int


def check_checkpoint(
    directory: str | os.PathLike[str],
    reference: str | os.PathLike[str],
    *,
    values: bool = True,
) -> Checkpoint:
    """Refuse new weights that an engine could not take, or should not.

    Args:
        directory: what is to be loaded.
        reference: the directory of the model that the engines run.
        values: whether every value is looked at, too.

    Raises:
        CheckpointError: says what is wrong with it.
    """
    directory, reference = Path(directory), Path(reference)
    found = headers(directory)
    _check_layout(directory, found)
    model = model_config(reference)
    _check_architecture(model_config(directory), model)
    tensors = headers(reference)
    check_tensors(found, tensors, tied=is_tied(model, tensors))
    if values:
        check_file_values(found)
    return Checkpoint(directory, len(found), sum(info.size_bytes for info in found.values()))


def check_state(state: Mapping[str, Any], reference: str | os.PathLike[str]) -> None:
    """Refuse a state dict whose tensors are not those of the model; looks at no values.

    Args:
        state: what :func:`~workbench.checkpoint.parts.split` takes.
        reference: the directory of the model that the engines run.

    Raises:
        CheckpointError: says what is wrong with it.
    """
    reference = Path(reference)
    tensors = headers(reference)
    check_tensors(outline(state), tensors, tied=is_tied(model_config(reference), tensors))


def _check_layout(directory: Path, found: Mapping[str, TensorInfo]) -> None:
    """Where there are such files, vLLM loads no others, by default and even in subfolders."""
    read = {info.file for info in found.values()}
    other = [file for file in directory.rglob("consolidated*.safetensors") if file not in read]
    if other:
        raise CheckpointError(
            "source",
            f"vLLM would load {listing(str(file.relative_to(directory)) for file in other)} "
            "and not the weights beside it",
            allowed="a directory with the weights in one layout",
        )


def model_config(directory: Path) -> dict[str, Any]:
    """The model's ``config.json`` with what it says of its text part; empty where there is none.

    Raises:
        CheckpointError: it cannot be read.
    """
    path = directory / "config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return {**config, **(config.get("text_config") or {}), **_identity(config)}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError("source", f"{path} cannot be read: {error}") from error


def _identity(config: dict[str, Any]) -> dict[str, Any]:
    """What is said of the whole model goes before what is said of its text part."""
    return {key: config[key] for key in ("architectures", "model_type") if key in config}


def is_tied(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether a model's output layer is its embedding, by its config or else by what it has."""
    said = config.get("tie_word_embeddings")
    return not any(name.endswith(LM_HEAD) for name in names) if said is None else bool(said)


def _check_architecture(found: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    different = [
        f"{key} is {found[key]} and not {model[key]}"
        for key in ARCHITECTURE
        if key in found and key in model and found[key] != model[key]
    ]
    if different:
        raise CheckpointError("source", f"another model: {listing(different)}")


def check_tensors(
    found: Mapping[str, Described], model: Mapping[str, Described], *, tied: bool
) -> None:
    """Refuse tensors that are not those of the model.

    Args:
        found: the new ones.
        model: those of the directory that the engines run.
        tied: whether the model's output layer is its embedding.

    Raises:
        CheckpointError: names the first few of one kind, and says how many there are.
    """

    def may_lack(name: str) -> bool:
        return name.endswith(COMPUTED) or (tied and name.endswith(LM_HEAD))

    missing = [name for name in model if name not in found and not may_lack(name)]
    if missing:
        raise CheckpointError(
            "source",
            f"{len(missing)} of {plural(len(model), 'tensor')} missing: {listing(missing)}",
        )
    unknown = [name for name in found if name not in model and not may_lack(name)]
    if unknown:
        raise CheckpointError(
            "source", f"{plural(len(unknown), 'tensor')} that the model has not: {listing(unknown)}"
        )
    both = [(name, found[name], model[name]) for name in found if name in model]
    _refuse(
        "shape",
        [
            f"{name} is {dimensions(new.shape)} and not {dimensions(old.shape)}"
            for name, new, old in both
            if new.shape != old.shape
        ],
    )
    _refuse(
        "dtype",
        [
            f"{name} is {new.dtype} and not {old.dtype}"
            for name, new, old in both
            if new.dtype != old.dtype and not {new.dtype, old.dtype} <= FLOATS
        ],
    )


def _refuse(what: str, problems: list[str]) -> None:
    if problems:
        raise CheckpointError(
            "source", f"{plural(len(problems), 'tensor')} of another {what}: {listing(problems)}"
        )
