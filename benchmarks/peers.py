"""Other projects' code for measurements side by side, each in a virtual environment of its own.

The environments lie below ``.peers/`` in the repository and are made on first use. A peer is
installed without its dependencies: what is taken out of it runs here and needs few of them.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / ".peers"

VERL_VERSION = "0.9.1"
VERL_ROUTER = "verl/workers/rollout/router.py"
VERL_BALANCER = "GlobalRequestLoadBalancer"


class PeerError(RuntimeError):
    """A peer cannot be had; says what was tried and what came of it."""


@functools.cache
def verl_balancer_class() -> type:
    """verl's ``GlobalRequestLoadBalancer``, executed from its installed file.

    A plain class, which ``ray.remote`` takes as it is: its module is known to nobody, so Ray sends
    it by value.

    Raises:
        PeerError: the package cannot be fetched, or is not what is expected.
    """
    path = _verl_router()
    module = ast.Module(_needed(path, VERL_BALANCER), type_ignores=[])
    # The name must not be that of an importable module, or Ray would import it on the other side.
    namespace: dict[str, Any] = {"__name__": "verl_router_excerpt", "__file__": str(path)}
    try:
        exec(compile(module, str(path), "exec", dont_inherit=True), namespace)
    except ImportError as error:
        raise PeerError(f"{path} needs what is not installed here: {error}") from error
    balancer: type = namespace[VERL_BALANCER]
    return balancer


def verl_balancer_source() -> str:
    """What :func:`verl_balancer_class` executes, as it stands in the installed file.

    Raises:
        PeerError: as there.
    """
    path = _verl_router()
    lines = path.read_text(encoding="utf-8").splitlines()
    parts = []
    for statement in _needed(path, VERL_BALANCER):
        first = min(n.lineno for n in (statement, *getattr(statement, "decorator_list", ())))
        parts.append("\n".join(lines[first - 1 : statement.end_lineno]))
    return "\n\n".join(parts) + "\n"


def _verl_router() -> Path:
    return _installed("verl", VERL_VERSION) / VERL_ROUTER


def _installed(name: str, version: str) -> Path:
    """The ``site-packages`` of a peer's environment, made and filled where it is not there yet.

    Raises:
        PeerError: one of the steps failed.
    """
    venv = FOLDER / name
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv)}))
    # pip writes the record last: without it an installation was interrupted.
    if not (packages / f"{name}-{version}.dist-info" / "RECORD").is_file():
        _run("-m", "venv", "--clear", "--without-pip", str(venv))
        python = str(venv / "bin" / "python")
        _run("-m", "pip", "--python", python, "install", "--no-deps", f"{name}=={version}")
    return packages


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr or done.stdout).strip().splitlines()[-3:]
        command = " ".join(["python", *arguments])
        raise PeerError(f"`{command}` failed; a package index is needed once: " + " ".join(told))


def _needed(path: Path, name: str) -> list[ast.stmt]:
    """The top-level statements of a file that define ``name`` and whatever it refers to.

    Those that are left out may import what is not installed.

    Raises:
        PeerError: the file or the name is not there.
    """
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except OSError as error:
        raise PeerError(f"the installed package has no {path.name}: {error}") from error
    defined_by = {bound: statement for statement in body for bound in _bound(statement)}
    if name not in defined_by:
        raise PeerError(f"{path} defines no {name}")
    chosen: list[ast.stmt] = []
    pending = [name]
    while pending:
        statement = defined_by.get(pending.pop())
        if statement is not None and statement not in chosen:
            chosen.append(statement)
            pending += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return [statement for statement in body if statement in chosen]


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement gives a value."""
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            return [(alias.asname or alias.name).partition(".")[0] for alias in names]
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []
