"""A learner's weights and state as directories that are complete or not there.

What is written outlives its process, however that ends; no more is done against a machine that
loses its power.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

from workbench.checkpoint.check import check_checkpoint
from workbench.errors import CheckpointError, ConfigError
from workbench.ids import new_id
from workbench.learner.network import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from workbench.learner.network import Network

WEIGHTS, STATE, CURRENT = "weights", "state.pt", "current"

NO_COPY = (".safetensors", ".safetensors.index.json", ".bin", ".gguf", ".pt")
"""What a model's directory has beside its tokenizer."""


def write_weights(network: Network, model: Path, folder: Path) -> None:
    """A directory that an engine loads: weights, configuration, tokenizer. Replaces what is there.

    Args:
        network: whose weights.
        model: the directory that they came from, for all that is no weight.
        folder: appears when it is complete.
    """
    with _complete(folder) as fresh:
        with quiet():
            network.model.save_pretrained(fresh)
        for path in model.iterdir():
            if path.is_file() and not path.name.endswith(NO_COPY):
                shutil.copyfile(path, fresh / path.name)


def save_state(network: Network, model: Path, folder: Path, step: int) -> Path:
    """All that a learner goes on from; the directory of the weights in it.

    What was saved there before stays until this is complete.
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    name = f"step-{step:06}-{new_id()[:8]}"
    with _complete(folder / name) as fresh:
        write_weights(network, model, fresh / WEIGHTS)
        state = {
            "step": step,
            "masters": dict(zip(network.names, network.masters, strict=True)),
            "optimizer": network.optimizer.state_dict()["state"],
        }
        torch.save(state, fresh / STATE)
    pointer = folder / f"{CURRENT}.new"
    pointer.write_text(name)
    pointer.replace(folder / CURRENT)
    for other in [*folder.glob("step-*"), *folder.glob(".step-*")]:  # also what was cut short
        if other.name != name:
            shutil.rmtree(other, ignore_errors=True)
    return folder / name / WEIGHTS


def load_state(network: Network, folder: Path) -> int:
    """Go on from what :func:`save_state` wrote; the step that it was at.

    Raises:
        ConfigError: there is nothing, or it is of another model.
    """
    import torch

    path = _current(folder) / STATE
    try:
        state: dict[str, Any] = torch.load(path, map_location=network.device, weights_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"{str(path)!r} cannot be read: {error}"
        raise ConfigError("folder", problem, allowed="what save() wrote") from error
    masters = dict(zip(network.names, network.masters, strict=True))
    saved = state["masters"]
    other = [name for name, master in masters.items() if name not in saved
             or saved[name].shape != master.shape]  # fmt: skip
    if other or len(saved) != len(masters):
        problem = f"{str(folder)!r} is of another model: {', '.join(other[:3]) or 'more tensors'}"
        raise ConfigError("folder", problem, allowed="what a learner of this model saved")
    with torch.no_grad():
        for name, master in masters.items():
            master.copy_(saved[name])
    rules = network.optimizer.state_dict()["param_groups"]  # as this learner was configured
    network.optimizer.load_state_dict({"state": state["optimizer"], "param_groups": rules})
    network.show()
    return int(state["step"])


def check_saved(folder: Path, model: Path, name: str = "folder") -> None:
    """Refuse what :func:`load_state` could not go on from, without loading it.

    Args:
        folder: what :func:`save_state` was given.
        model: the directory of the learner's model.
        name: of the argument, for the error.

    Raises:
        ConfigError: there is nothing, it was cut off, or it is of another model.
    """
    saved = _current(folder, name)
    if not zipfile.is_zipfile(saved / STATE):
        problem = f"{str(saved / STATE)!r} is not there, or was cut off"
        raise ConfigError(name, problem, allowed="what save() wrote")
    try:
        check_checkpoint(saved / WEIGHTS, model, values=False)
    except CheckpointError as error:
        problem = f"{str(folder)!r} is of another model: {error.problem}"
        raise ConfigError(name, problem, allowed="what a learner of this model saved") from error


def _current(folder: Path, name: str = "folder") -> Path:
    try:
        return folder / (folder / CURRENT).read_text()
    except OSError as error:
        problem = f"nothing was saved in {str(folder)!r}"
        raise ConfigError(name, problem, allowed="what save() wrote") from error


@contextlib.contextmanager
def _complete(folder: Path) -> Iterator[Path]:
    """A new directory beside this one, which takes its place once the block is through."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.with_name(f".{folder.name}.{new_id()[:8]}.partial")
    fresh.mkdir()
    try:
        yield fresh
        old = None
        if folder.exists():
            old = folder.rename(fresh.with_suffix(".old"))
        os.rename(fresh, folder)  # noqa: PTH104 - onto nothing; Path.replace would say otherwise
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
