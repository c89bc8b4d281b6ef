"""A configuration file: read, copied and replaced as a whole."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Whoever else changes this file waits until the block is left.

    Raises:
        ConfigError: its folder cannot be used.
    """
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(path, error, "config_file") from error
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def read(path: Path) -> str:
    """The text of a file; empty where there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _unusable(path, error, "config_file") from error


def back_up(path: Path) -> None:
    """Copy a file beside itself, unless there is such a copy already.

    Raises:
        ConfigError: it cannot be copied.
    """
    path = path.resolve()
    try:
        for number in count(1):
            copy = path.with_name(f"{path.name}.bak{number if number > 1 else ''}")
            if not copy.exists():
                shutil.copy2(path, copy)
                return
            if copy.read_bytes() == path.read_bytes():
                return
    except OSError as error:
        raise _unusable(path, error, "config_file") from error


def replace(path: Path, text: str, field: str) -> None:
    """Write a file as a whole or not at all. Mode and owner stay, and a link stays a link.

    Raises:
        ConfigError: it cannot be written; ``field`` says whose path it is.
    """
    path = path.resolve()
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with scratch.open("x", encoding="utf-8") as file:
            if path.exists():
                path.open("r+").close()  # a rename would get past a file that is read-only
                before = path.stat()
                with suppress(PermissionError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), before.st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        raise _unusable(path, error, field) from error
    finally:
        with suppress(OSError):
            scratch.unlink()


def _unusable(path: Path, error: Exception, field: str) -> ConfigError:
    why = getattr(error, "strerror", None) or str(error)
    return ConfigError(
        field, f"{str(path)!r}: {why}", allowed="a file that can be read and written"
    )
