"""Addresses of replicas as targets of Prometheus."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench.errors import ConfigError
from workbench.prometheus.files import replace

StrPath = str | os.PathLike[str]

Addresses = Sequence[str] | Mapping[str, str]
"""``http://host:port`` or ``host:port``; by replica id, they get a label ``replica``."""

ADDRESS = "http://host:port or host:port, with an IPv6 host in brackets"


def write_targets(path: StrPath, addresses: Addresses, labels: Mapping[str, str]) -> None:
    """Write a file for ``file_sd_configs``, which Prometheus follows without a reload.

    Args:
        path: a ``.json`` file, replaced as a whole.
        addresses: of all that there are now; none empties it.
        labels: of all of them.

    Raises:
        ConfigError: an address or the path is refused, or the file cannot be written.
    """
    groups = target_groups(addresses, labels, "addresses")
    replace(Path(sd_path(path, "path")), json.dumps(groups, indent=1) + "\n", "path")


def target_groups(
    addresses: Addresses, labels: Mapping[str, str], field: str
) -> list[dict[str, Any]]:
    """As Prometheus has them: targets with the labels that they share.

    Raises:
        ConfigError: an address is refused; ``field`` says whose it is.
    """
    shared = dict(labels)
    if isinstance(addresses, str) or not isinstance(addresses, Mapping | Sequence):
        allowed = "a list of addresses, or addresses by replica id"
        raise ConfigError(field, f"{addresses!r}", allowed=allowed)
    if isinstance(addresses, Mapping):
        return [
            {"targets": [target(address, field)], "labels": shared | {"replica": replica_id}}
            for replica_id, address in addresses.items()
        ]
    targets = list(dict.fromkeys(target(address, field) for address in addresses))
    return [{"targets": targets, "labels": shared}] if targets else []


def target(address: str, field: str) -> str:
    """``host:port``.

    Raises:
        ConfigError: it is something else; ``field`` says whose it is.
    """
    try:
        split = urlsplit(address if "//" in address else f"//{address}")
        host, port = split.hostname, split.port
        if host and ":" in host:
            ipaddress.IPv6Address(host)
            host = f"[{host}]"
    except (ValueError, TypeError) as error:
        raise ConfigError(field, f"{address!r}: {error}", allowed=ADDRESS) from error
    rest = (split.path.rstrip("/"), split.query, split.fragment, split.username)
    if split.scheme not in {"", "http"} or not host or not port or any(rest):
        raise ConfigError(field, f"{address!r}", allowed=ADDRESS)
    return f"{host}:{port}"


def sd_path(path: StrPath, field: str) -> str:
    """Where Prometheus finds a file of targets, as it wants to have it.

    Raises:
        ConfigError: it would not take a file of that name; ``field`` says whose it is.
    """
    path = Path(path).absolute()
    if path.suffix != ".json" or "*" in str(path):
        raise ConfigError(field, f"{str(path)!r}", allowed="a path that ends in .json")
    return str(path)
