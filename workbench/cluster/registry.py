"""Pools of this machine's user by name: one small file each, so that other processes find them.

The folder is the user's alone, since who can write to it says where others connect to. What a
process that is gone left behind is ignored and swept away.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from workbench.engines.guard import start_time
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

Kind = Literal["owned", "head", "detached"]


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """A pool and the process that owns it."""

    name: str
    model: str
    address: str
    """Of the Ray head."""
    pid: int
    """Of the owner."""
    process_start: str | None
    """When that process began, as the system counts: a pid alone may be another's by now."""
    host: str
    created_s: float
    """Seconds since 1970."""
    kind: Kind = "owned"
    """Whose end is the pool's: ``owned``, of the process that made it; ``head``, of a Ray head that
    was started for it alone; ``detached``, of its controller."""

    @classmethod
    def of_process(
        cls, name: str, model: str, address: str, pid: int | None = None, kind: Kind = "owned"
    ) -> PoolEntry:
        """A pool that ends with a process on this machine; this one by default."""
        pid = pid or os.getpid()
        start, host = start_time(pid), os.uname().nodename
        return cls(name, model, address, pid, start, host, time.time(), kind)

    @property
    def phrase(self) -> str:
        """Whose it is, in words."""
        if self.kind == "owned":
            return f"owned by process {self.pid} on {self.host}"
        return f"detached, on {self.host}"

    @property
    def lives(self) -> bool:
        """Whether the owner does, on this machine."""
        return self.process_start is not None and start_time(self.pid) == self.process_start

    def taken(self) -> ConfigError:
        """What who asks for the same name is told."""
        here = self.pid == os.getpid() and self.host == os.uname().nodename
        since = time.strftime("%H:%M:%S", time.localtime(self.created_s))
        whose = "owned by this process" if here and self.kind == "owned" else self.phrase
        return ConfigError(
            "name",
            f"{self.name!r} is a pool of {self.model!r} already, {whose}, since {since}",
            allowed=f"a name that is free; Workbench(name={self.name!r}) attaches to that pool, "
            f"from elsewhere with address={self.address!r}",
        )


class Registry:
    """The pools of this user on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or _runtime_folder() / f"workbench-{os.getuid()}"

    def find(self, name: str) -> PoolEntry | None:
        """The living pool of this name."""
        return next((entry for entry in self.entries() if entry.name == name), None)

    def entries(self) -> list[PoolEntry]:
        """The living ones by name; sweeps the others away."""
        try:
            with self._locked():
                return sorted(self._swept(), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            logger.warning("pools of this machine cannot be listed: %s", error)
            return []

    def claim(self, entry: PoolEntry) -> None:
        """Write a pool down, if no living one has its name.

        A folder that cannot be used keeps no pool from starting: others need its address then.

        Raises:
            ConfigError: the name is taken; says by whom.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700, parents=True)
            with self._locked():
                for other in self._swept():
                    if other.name == entry.name:
                        raise other.taken()
                self._write(entry)
        except OSError as error:
            logger.warning("the pool %r is not listed on this machine: %s", entry.name, error)

    def release(self, entry: PoolEntry) -> None:
        """Take an entry back, unless its name is another pool's by now. Idempotent."""
        with contextlib.suppress(OSError), self._locked():
            path = self._path(entry.name)
            if _read(path) == entry:
                path.unlink()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{self.folder} is not a folder of this user alone")
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _swept(self) -> list[PoolEntry]:
        found = []
        for path in self.folder.glob("*.json"):
            entry = _read(path)
            if entry is not None and entry.host != os.uname().nodename:
                continue  # a container that shares this folder: its processes cannot be seen here
            if entry is not None and entry.lives:
                found.append(entry)
            else:
                path.unlink(missing_ok=True)
        return found

    def _write(self, entry: PoolEntry) -> None:
        path = self._path(entry.name)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(entry)))
        fresh.replace(path)  # whoever reads sees all of it or nothing

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _read(path: Path) -> PoolEntry | None:
    """None where there is nothing that makes sense."""
    try:
        return PoolEntry(**json.loads(path.read_text()))
    except (OSError, TypeError, ValueError):
        return None


def _runtime_folder() -> Path:
    """Where this user's running programs keep what they need."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    return Path(given) if given and os.access(given, os.W_OK) else Path(tempfile.gettempdir())
