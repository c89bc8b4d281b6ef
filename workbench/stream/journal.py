"""A stream's facts on disk, so that it goes on after the death of the process that had it.

One file, ``stream.journal``, that only grows: a record is the lengths of a pickled fact and of the
bytes that go with it, a checksum, and both. A record that was cut off at the end is none. When the
file is mostly of what nobody will ask for any more, it is written anew: the books as they stand
and what goes with them.

Records are written and not synced: a process may die at any moment and nothing is lost; a machine
that dies may lose its last seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import pickle
import struct
import threading
import time
import zlib
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from workbench.errors import ConfigError, StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NAME = "stream.journal"
MAGIC = b"workbench stream 1\n"
HEAD = struct.Struct("<QQI")
"""Bytes of the fact, bytes of the blob, checksum over both."""

SPARE_BYTES = 64 * 2**20
"""What the file may hold of what nobody will ask for, and as much again as is still asked for."""

POLL_S = 0.05


class Record(NamedTuple):
    """One thing that is kept."""

    fact: Any
    blob: bytes = b""


class Journal:
    """The journal in a folder, which is made if need be. One process at a time has it.

    Args:
        folder: where it is.
        wait_s: how long another process may take to let go of it.

    Raises:
        ConfigError: the folder cannot be made, or not be written in.
        StreamError: another process has it, or there is something else in its place.
    """

    def __init__(self, folder: Path, wait_s: float = 0.0) -> None:
        self.folder = folder
        self._path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / f"{NAME}.lock").open("a")
        except OSError as error:
            allowed = "a directory that can be written in, or one that can be made"
            raise ConfigError("folder", str(error), allowed=allowed) from error
        self._await_lock(wait_s)
        try:
            self._file: IO[bytes] = self._path.open("a+b", buffering=0)
        except OSError as error:
            self._lock.close()
            raise StreamError(f"the journal cannot be opened: {error}") from error
        self._rewriting: _Rewriting | None = None
        self.size = self._path.stat().st_size
        """Bytes in the file."""
        self._whole = 0
        """The same just after it was written anew."""
        if self.size < len(MAGIC) and MAGIC.startswith(self._path.read_bytes()):
            self._file.truncate(0)  # whoever made it got no further
            self.size = 0
            self._write([MAGIC])

    def _await_lock(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() >= deadline:
                self._lock.close()
                raise StreamError(f"another process runs the stream in {self.folder}")
            time.sleep(POLL_S)

    def records(self) -> Iterator[Record]:
        """All that were kept, in their order; what was cut off at the end is removed.

        Raises:
            StreamError: this is no journal of a stream.
        """
        end = 0
        with self._path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise StreamError(f"{self._path} is not the journal of a stream")
            end = file.tell()
            while (record := _read(file)) is not None:
                end = file.tell()
                yield record
        self._file.truncate(end)
        self.size = end

    def append(self, records: Sequence[Record]) -> None:
        """Keep these.

        Raises:
            OSError: they cannot be written; none of them is kept then.
        """
        parts = [part for record in records for part in _packed(record)]
        self._write(parts)
        if self._rewriting is not None:
            self._rewriting.since += parts
            self._finish(wait=False)

    def _write(self, parts: Sequence[bytes]) -> None:
        try:
            for part in parts:
                _write_all(self._file, part)
        except OSError:
            self._file.truncate(self.size)  # what comes later must not stand behind half a record
            raise
        self.size += sum(map(len, parts))

    # -- written anew -------------------------------------------------------------------------

    def is_bloated(self, wanted_bytes: int) -> bool:
        """Whether most of it is not asked for any more, where this many bytes still are."""
        asked_for = max(self._whole, wanted_bytes)
        return self._rewriting is None and self.size > 2 * asked_for + SPARE_BYTES

    def rewrite(self, records: Sequence[Record], *, wait: bool = False) -> None:
        """Have these in the place of all that was kept so far, from a thread unless ``wait``."""
        self._finish(wait=True)
        self._rewriting = _Rewriting(self._path.with_suffix(".new"), records)
        self._finish(wait=wait)

    def _finish(self, *, wait: bool) -> None:
        if self._rewriting is None or (self._rewriting.thread.is_alive() and not wait):
            return
        done, self._rewriting = self._rewriting, None
        done.thread.join()
        if done.file is None:  # no room for two of them, say: the old one is still whole
            self._whole = self.size
            return
        self._file.close()
        self._file = done.file
        self.size = self._whole = done.size
        self._write(done.since)
        done.path.replace(self._path)

    def close(self) -> None:
        """Let go of the folder. Idempotent."""
        if not self._lock.closed:
            self._finish(wait=True)
            self._file.close()
            self._lock.close()


class _Rewriting:
    """A new file, written by a thread of its own."""

    def __init__(self, path: Path, records: Sequence[Record]) -> None:
        self.path = path
        self.file: IO[bytes] | None = None
        self.size = 0
        self.since: list[bytes] = []
        """What was appended to the old one meanwhile."""
        self.thread = threading.Thread(target=self._write, args=(records,), daemon=True)
        self.thread.start()

    def _write(self, records: Sequence[Record]) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            file = undo.enter_context(self.path.open("wb", buffering=0))
            for part in (MAGIC, *(part for record in records for part in _packed(record))):
                _write_all(file, part)
                self.size += len(part)
            undo.pop_all()
            self.file = file


def _write_all(file: IO[bytes], written: bytes) -> None:
    left = memoryview(written)
    while left:
        left = left[file.write(left) :]


def _packed(record: Record) -> tuple[bytes, bytes]:
    """To be written one behind the other: a large blob is not copied for it."""
    fact = pickle.dumps(record.fact, pickle.HIGHEST_PROTOCOL)
    checksum = zlib.crc32(record.blob, zlib.crc32(fact))
    return HEAD.pack(len(fact), len(record.blob), checksum) + fact, record.blob


def _read(file: IO[bytes]) -> Record | None:
    """The next one; None at the end, which may be in the middle of one."""
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    fact_bytes, blob_bytes, checksum = HEAD.unpack(head)
    body = file.read(fact_bytes + blob_bytes)
    if len(body) < fact_bytes + blob_bytes or zlib.crc32(body) != checksum:
        return None
    return Record(pickle.loads(body[:fact_bytes]), body[fact_bytes:])
