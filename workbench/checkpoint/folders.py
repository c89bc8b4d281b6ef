"""Folders in a node's memory that end with the process that made them.

Each is held by a lock on a file in it, which the system gives back however that process ended. A
folder whose lock is free is a leftover, and who makes the next folder sweeps it away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from workbench.errors import PoolError

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED_MEMORY = Path("/dev/shm")
MEMORY = Path("/proc/meminfo")


def roomy(size_bytes: int) -> Path:
    """Shared memory if it has this much room, else the folder for temporary files."""
    if os.access(SHARED_MEMORY, os.W_OK) and free_bytes(SHARED_MEMORY) >= size_bytes:
        return SHARED_MEMORY
    return Path(tempfile.gettempdir())


def free_bytes(folder: Path) -> int:
    """What still goes into a folder: in shared memory, no more than there is memory."""
    free = shutil.disk_usage(folder).free
    if folder.is_relative_to(SHARED_MEMORY):
        # Its own limit may be above what is left, and beyond that processes are killed.
        with contextlib.suppress(OSError, KeyError, ValueError):
            lines = (line.split(":") for line in MEMORY.read_text().splitlines())
            free = min(free, int(dict(lines)["MemAvailable"].split()[0]) << 10)
    return free


class OwnFolder:
    """A folder of this process alone, in one of this user alone."""

    def __init__(self, root: Path, name: str) -> None:
        """Make it, and sweep leftovers in the same root away.

        Raises:
            PoolError: somebody else's folder is in the way.
        """
        home = root / f"rollout-workbench-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=0o700, parents=True)
        with _locked(home):
            _sweep(home)
            self.path = Path(tempfile.mkdtemp(prefix=f"{name}-{os.getpid()}-", dir=home))
            self._held = (self.path / "lock").open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it. What is mapped stays readable to who mapped it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._held.close()


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PoolError(f"{home} is not a folder of this user alone")
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep(home: Path) -> None:
    for folder in home.iterdir():
        if folder.is_dir() and not _is_held(folder / "lock"):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(path: Path) -> bool:
    try:
        with path.open() as lock:
            return not _take(lock)
    except FileNotFoundError:
        return False  # its removal was cut short


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
