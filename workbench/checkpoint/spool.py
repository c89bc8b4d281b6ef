"""Parts of a state dict → a directory in a node's shared memory that every engine there maps.

A version is written under another name and renamed once it is complete, so that a directory with
a version's name is always whole. Each part becomes one file, written straight from the arrays.
"""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from workbench.checkpoint.check import LM_HEAD, is_tied, model_config
from workbench.checkpoint.folders import OwnFolder, free_bytes, roomy
from workbench.checkpoint.headers import BITS, INDEX, headers
from workbench.checkpoint.parts import Part, Piece
from workbench.checkpoint.words import listing
from workbench.errors import CheckpointError, NoRoomError

if TYPE_CHECKING:
    import os
    from types import TracebackType

SLACK = 16 << 20
"""Bytes left free beside a part, for its header and for others."""


class Spool:
    """Versions of a model's weights on one node, each a directory. Any thread may call."""

    def __init__(
        self, pool: str, reference: str | os.PathLike[str], root: Path | None = None
    ) -> None:
        """Make the folder, readable by this user alone.

        Args:
            pool: whose weights they are.
            reference: the directory of the model that the engines run.
            root: where the folder goes; shared memory unless that cannot hold two versions.

        Raises:
            CheckpointError: the reference cannot be read.
            PoolError: the folder cannot be made safely.
        """
        self._config = Path(reference) / "config.json"
        tensors = headers(Path(reference))
        self._tied = is_tied(model_config(Path(reference)), tensors)
        size = sum(info.size_bytes for info in tensors.values())
        self._folder = OwnFolder(root or roomy(2 * size + SLACK), pool)

    @property
    def folder(self) -> Path:
        """Where the versions are."""
        return self._folder.path

    def write(self, version: int, part: Part) -> None:
        """Put one part of a version down. A part that comes again replaces itself.

        Raises:
            NoRoomError: it does not fit; says how much there is.
        """
        target = self._partial(version)
        target.mkdir(exist_ok=True)
        tensors = {
            name: piece
            for name, piece in part.tensors.items()
            if not (self._tied and name.endswith(LM_HEAD))  # the engine takes its embedding
        }
        self._check_room(version, part)
        final = target / f"model-{part.index + 1:05}-of-{part.count:05}.safetensors"
        fresh = final.with_suffix(".new")
        try:
            _write_file(fresh, tensors)
            fresh.replace(final)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            if error.errno != errno.ENOSPC:
                raise
            raise self._no_room(version, part) from error

    def finish(self, version: int) -> Path:
        """The directory of a version whose parts were all written.

        Raises:
            CheckpointError: parts are missing, or none fit together.
        """
        target = self._partial(version)
        files = sorted(target.glob("model-*.safetensors"))
        counts = {int(file.stem.rpartition("-")[2]) for file in files}
        missing = set(range(1, max(counts, default=1) + 1)) - {
            int(file.stem.split("-")[1]) for file in files
        }
        if missing or len(counts) != 1:
            which = listing(map(str, sorted(missing))) or "several sizes of the whole"
            raise CheckpointError("source", f"version {version} is not complete: parts {which}")
        tensors = headers(target)
        index = {
            "metadata": {"total_size": sum(info.size_bytes for info in tensors.values())},
            "weight_map": {name: info.file.name for name, info in sorted(tensors.items())},
        }
        (target / INDEX).write_text(json.dumps(index))
        if self._config.is_file():
            shutil.copyfile(self._config, target / "config.json")
        final = self._final(version)
        shutil.rmtree(final, ignore_errors=True)  # the same version once more
        return target.rename(final)

    def find(self, version: int) -> Path | None:
        """The directory of a version that is complete."""
        final = self._final(version)
        return final if final.is_dir() else None

    def read(self, version: int) -> list[Part]:
        """The parts of a version that is complete, for another node."""
        files: dict[Path, dict[str, Piece]] = {}
        for name, info in headers(self._final(version)).items():
            data = np.fromfile(info.file, np.uint8, info.size_bytes, offset=info.start)
            files.setdefault(info.file, {})[name] = Piece(info.dtype, info.shape, data)
        return [Part(i, len(files), files[file]) for i, file in enumerate(sorted(files))]

    def remove(self, version: int) -> None:
        """Drop a version, complete or not. Engines that map it keep what they have. Idempotent."""
        for folder in (self._partial(version), self._final(version)):
            shutil.rmtree(folder, ignore_errors=True)

    def remove_older(self, version: int) -> None:
        """Drop every version below this one."""
        for folder in self.folder.glob("v*"):
            found = int(folder.name[1:].removesuffix(".partial"))
            if found < version:
                self.remove(found)

    def close(self) -> None:
        """Drop everything. Idempotent."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _final(self, version: int) -> Path:
        return self.folder / f"v{version}"

    def _partial(self, version: int) -> Path:
        return self.folder / f"v{version}.partial"

    def _check_room(self, version: int, part: Part) -> None:
        if free_bytes(self.folder) < part.size_bytes + SLACK:
            raise self._no_room(version, part)

    def _no_room(self, version: int, part: Part) -> NoRoomError:
        free = free_bytes(self.folder)
        return NoRoomError(
            f"version {version} does not fit into {self.folder}: part {part.index + 1} of "
            f"{part.count} takes {part.size_bytes >> 20:,} MiB, {free >> 20:,} MiB are free"
        )


def _write_file(path: Path, tensors: dict[str, Piece]) -> None:
    # Wide elements first: each then begins at a multiple of its size.
    ordered = sorted(tensors.items(), key=lambda item: (-BITS[item[1].dtype], item[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, piece in ordered:
        end = at + piece.data.nbytes
        header[name] = {"dtype": piece.dtype, "shape": piece.shape, "data_offsets": [at, end]}
        at = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for _, piece in ordered:
            file.write(piece.data.data)  # larger than the buffer: straight to the file
