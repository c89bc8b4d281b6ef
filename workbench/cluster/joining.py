"""Joining a Ray cluster, or starting one that serves this machine alone."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray._private import ray_constants
from ray._private.authentication import authentication_token_setup as token_setup
from ray._private.services import resolve_ip_for_localhost

from workbench.cluster.vigil import answers
from workbench.errors import ConfigError, PoolError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "workbench"
"""Of Ray's names, for all that a pool names: pools are found there from every process."""

OBJECT_STORE_BYTES = 512 * 2**20
"""Enough for tokens; a laptop's shared memory is small."""

ALL_IN_MESSAGES = {
    "max_direct_call_object_size": 64 * 2**20,
    "task_rpc_inlined_bytes_limit": 128 * 2**20,
}
"""Tokens and figures travel in messages and not through the cluster's shared memory: Ray ends a
process that touches that when the cluster is gone, and attached ones are to live on."""

ATTEMPTS = 2
"""Ray gives a start up after 30 s, which a machine that is busy for a moment may need."""

ANSWER_S = 10.0
"""How long a cluster's head may take to answer."""


def join(address: str | None) -> None:
    """Join the cluster at ``address``; without one start Ray here.

    Raises:
        ConfigError: no cluster answers there, or it does not let this process in.
        PoolError: Ray does not start here.
    """
    # Replicas write logs of their own; what Ray's workers say adds nothing to a cell.
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "namespace": NAMESPACE,
    }
    if address:
        _check_address(address)
        _show_token()
        try:
            is_near = _is_on_loopback(address)
            with _loopback(enabled=is_near):
                ray.init(address=address, runtime_env=None if is_near else our_code(), **quiet)
        except (ConnectionError, RuntimeError) as error:
            problem = f"the Ray cluster at {address!r} does not let this process in: {error}"
            raise ConfigError("address", problem) from error
        return
    for attempt in range(ATTEMPTS):
        try:
            _start_here(quiet)
        except Exception as error:
            if attempt == ATTEMPTS - 1:
                raise PoolError(f"Ray did not start on this machine: {error}") from error
            ray.shutdown()  # what did start of it
        else:
            return


def _start_here(quiet: dict[str, Any]) -> None:
    with _loopback(enabled=True):  # a pool of this machine alone serves nobody else
        ray.init(
            address="local",  # not one that somebody once started here
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            object_store_memory=OBJECT_STORE_BYTES,
            _system_config=ALL_IN_MESSAGES,
            **quiet,
        )


def our_code() -> dict[str, Any]:
    """A runtime environment with this project's packages, for nodes that may have none of them.

    What they depend on has to be installed there, vLLM and Ray above all.
    """
    found = [importlib.util.find_spec(name) for name in ("workbench", "widgets")]
    return {"py_modules": [str(Path(s.origin).parent) for s in found if s and s.origin]}


def check_same(address: str) -> None:
    """Refuse an address of another cluster than the one that this process is in.

    Raises:
        ConfigError: says where it is.
    """
    here: str = ray.get_runtime_context().gcs_address
    if address not in {"auto", here} and not _same_head(address, here):
        raise ConfigError(
            "address",
            f"this process is in the Ray cluster at {here} already, and can be in one only",
            allowed=f"{here}, or another one after what is open here was closed",
        )


def _same_head(one: str, other: str) -> bool:
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    try:
        return port == other_port and _outside(host) == _outside(other_host)
    except OSError:
        return False


def _outside(host: str) -> str:
    """A host's address as Ray writes it: this machine is never ``localhost``."""
    address: str = resolve_ip_for_localhost(socket.gethostbyname(host))
    return address


def _check_address(address: str) -> None:
    """Refuse an address at which no cluster answers; Ray itself would go on trying.

    Raises:
        ConfigError: says what is wrong with it.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError("address", f"{address!r}", allowed="host:port of a Ray head, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise ConfigError("address", f"nothing answers at {address!r}: {error}") from error


@contextmanager
def _loopback(*, enabled: bool) -> Iterator[None]:
    """Ray begun meanwhile stays on 127.0.0.1, for which it would else put an outside address."""
    variable = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    known = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(variable)
    if enabled:
        ray_constants.ENABLE_RAY_CLUSTER = False
        os.environ[variable] = "0"  # for the processes that it starts
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = known[0]
        os.environ.pop(variable, None)
        if known[1] is not None:
            os.environ[variable] = known[1]


def _is_on_loopback(address: str) -> bool:
    """Whether a head of this machine answers at 127.0.0.1 and not at its outside address."""
    host, _, port = address.rpartition(":")
    return host in {"127.0.0.1", "localhost"} and not answers(f"{_outside(host)}:{port}")


def _show_token() -> None:
    """Have Ray show this user's token, as where it starts a cluster by itself."""
    logging.getLogger(token_setup.__name__).setLevel(logging.ERROR)
    token_setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
