"""How a dashboard may be reached: what was asked for, checked before anything is opened. Pure."""

from __future__ import annotations

import ipaddress
import re
import secrets
from dataclasses import dataclass

from workbench.errors import ConfigError

SHORTEST_PASSWORD = 8
"""Characters. Guesses are slowed down, so that this is enough against the network."""

_SEGMENT = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")


@dataclass(frozen=True, slots=True)
class Options:
    """Where a dashboard listens, and who may look."""

    address: str
    port: int
    """0 for any that is free."""
    prefix: str
    """Empty, or with a slash in front and none behind."""
    password: str | None


def check_options(address: str, port: int, prefix: str, password: str | None) -> Options:
    """The options, or an error that names the first that is wrong.

    Raises:
        ConfigError: address, port, prefix or password.
    """
    if not isinstance(address, str) or not address.strip():
        raise ConfigError("address", f"{address!r}", allowed="an address of this machine")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigError("port", f"{port!r}", allowed="a whole number from 0 to 65535")
    return Options(address, port, check_prefix(prefix), check_password(password, address))


def check_prefix(prefix: str) -> str:
    """``lab``, ``/lab/`` and ``/lab`` as ``/lab``; empty stays empty."""
    path = prefix.strip("/") if isinstance(prefix, str) else None
    if path is None or (path and not all(map(_SEGMENT.fullmatch, path.split("/")))):
        allowed = "letters, digits, - . _ ~ (no dot in front), with / in between"
        raise ConfigError("prefix", f"{prefix!r}", allowed=allowed)
    return f"/{path}" if path else ""


def check_password(password: str | None, address: str) -> str | None:
    """The password to ask for; None where anybody may look, which is on loopback only.

    Where one is needed and none is given, a new one is made. The error never repeats what was
    given.
    """
    if password is None:
        return None if is_loopback(address) else secrets.token_urlsafe(18)
    if not isinstance(password, str) or len(password) < SHORTEST_PASSWORD:
        problem = "is too short" if isinstance(password, str) else "is not text"
        allowed = f"{SHORTEST_PASSWORD} characters or more, or None"
        raise ConfigError("password", problem, allowed=allowed)
    return password


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it. Names other than ``localhost`` are not trusted."""
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address == "localhost" or address.endswith(".localhost")


def is_everywhere(address: str) -> bool:
    """Whether it stands for all addresses of this machine."""
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def netloc(address: str, port: int) -> str:
    """Address and port as they stand in a URL."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
