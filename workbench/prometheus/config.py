"""A pool's own jobs in the configuration of a Prometheus server."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from workbench.errors import ConfigError
from workbench.prometheus.files import alone, back_up, read, replace
from workbench.prometheus.jobs import compose, replace_jobs, serialize
from workbench.prometheus.server import PrometheusError, checked_url, reload_prometheus
from workbench.prometheus.targets import sd_path, target, target_groups, write_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workbench.prometheus.targets import Addresses, StrPath

_NAME = re.compile(r"[\w.-]+", re.ASCII)


def update_prometheus_config(
    config_file: StrPath,
    server_addresses: Addresses,
    *,
    name: str = "workbench",
    exporter_address: str | None = None,
    sd_file: StrPath | None = None,
    sd_url: str | None = None,
    credentials_file: StrPath | None = None,
    prometheus_url: str | None = None,
    scrape_interval_s: float = 5.0,
) -> None:
    """Put a pool's jobs into a configuration in place of those it had there.

    All that the file holds besides stays as it is, but for comments and layout, which YAML does not
    keep: a file that would lose any is copied first, to ``<name>.bak``, ``.bak2``, … beside it. A
    file that already says the same is not touched. The file is replaced as a whole, keeps its mode,
    and is made where there is none.

    Args:
        config_file: of the server.
        server_addresses: of all replicas that there are now. None of them, and no exporter, removes
            the jobs.
        name: the pool's.
        exporter_address: where the pool's own figures are.
        sd_file: a ``.json`` file for the replicas' addresses, which the server has to be able to
            read at this path; :func:`write_targets` then follows the pool without a reload. Given
            one, the job stays while there are no replicas.
        sd_url: where Prometheus asks for the replicas by itself, in place of ``server_addresses``:
            a pool's exporter answers at ``/targets``.
        credentials_file: holds the bearer token that replicas and exporter want; it is the server
            that reads it.
        prometheus_url: of the server, to make it take the file and check that it did.
        scrape_interval_s: seconds, to the millisecond.

    Raises:
        ConfigError: an argument is refused, the file is no Prometheus configuration, or it cannot
            be read or written. Nothing was changed, but for ``sd_file`` where the other could not
            be written.
        PrometheusError: the server did not take the file, which stays written.
    """
    path, labels = Path(config_file), _pool_labels(name)
    common: dict[str, Any] = {"scrape_interval": _duration(scrape_interval_s)}
    if credentials_file is not None:
        common["authorization"] = {"credentials_file": str(Path(credentials_file).absolute())}
    jobs = []
    groups = target_groups(server_addresses, labels, "server_addresses")
    if found := _discovery(groups, sd_file, sd_url, common):
        jobs.append({"job_name": f"{name}/replicas"} | common | found)
    if exporter_address is not None:
        there = {"targets": [target(exporter_address, "exporter_address")]}
        jobs.append({"job_name": f"{name}/pool"} | common | {"static_configs": [there]})
    with alone(path):
        text = read(path)
        document = compose(text)
        plain = serialize(document)
        changed = replace_jobs(document, {f"{name}/replicas", f"{name}/pool"}, jobs)
        if sd_file is not None:
            write_targets(sd_file, server_addresses, labels)
        if changed:
            if text and text != plain:
                back_up(path)
            replace(path, serialize(document), "config_file")
    if prometheus_url is not None:
        _check_running(prometheus_url, reload_prometheus(prometheus_url), name, jobs)


def write_config_file(path: StrPath, config: Mapping[str, Any]) -> None:
    """Write a whole configuration as YAML, as a whole or not at all, and keep the file's mode.

    Raises:
        ConfigError: it is no mapping, YAML has no words for it, or the file cannot be written.
    """
    allowed = "a mapping of plain values"
    if not isinstance(config, Mapping):
        raise ConfigError("config", f"{config!r}", allowed=allowed)
    try:
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise ConfigError("config", str(error), allowed=allowed) from error
    replace(Path(path), text, "path")


def _discovery(
    groups: Sequence[Mapping[str, Any]],
    sd_file: StrPath | None,
    sd_url: str | None,
    common: Mapping[str, Any],
) -> dict[str, Any]:
    """How Prometheus finds the replicas; empty where there are none to find."""
    # Network file systems tell nobody of a change, so that files are read again by themselves too.
    again = {"refresh_interval": common["scrape_interval"]}
    if sd_url is not None:
        if groups or sd_file is not None:
            allowed = "no server_addresses and no sd_file beside it"
            raise ConfigError(
                "sd_url", "the replicas are given in another way too", allowed=allowed
            )
        key = {k: v for k, v in common.items() if k == "authorization"}
        return {"http_sd_configs": [{"url": checked_url(sd_url, "sd_url")} | again | key]}
    if sd_file is not None:
        return {"file_sd_configs": [{"files": [sd_path(sd_file, "sd_file")]} | again]}
    return {"static_configs": groups} if groups else {}


def _check_running(
    url: str, running: Mapping[str, Any], name: str, jobs: Sequence[Mapping[str, Any]]
) -> None:
    """Whether a server's jobs of this pool are the ones that were written.

    Raises:
        PrometheusError: they are others; it reads another file.
    """
    runs = {job["job_name"]: _whom(job) for job in running.get("scrape_configs") or ()}
    wanted = {job["job_name"]: _whom(job) for job in jobs}
    for job in (f"{name}/replicas", f"{name}/pool"):
        if runs.get(job) != wanted.get(job):
            problem = f"reloaded, but runs with {runs.get(job)} and not {wanted.get(job)} as {job}"
            raise PrometheusError(f"{url} {problem}: it may have been started with another file")


def _whom(job: Mapping[str, Any]) -> list[str]:
    """The targets of a job, and where it finds more."""
    static = [target for group in job.get("static_configs", ()) for target in group["targets"]]
    files = [file for sd in job.get("file_sd_configs", ()) for file in sd["files"]]
    return sorted(static + files + [sd["url"] for sd in job.get("http_sd_configs", ())])


def _pool_labels(name: str) -> dict[str, str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError("name", f"{name!r}", allowed="letters, digits and _ . -")
    return {"pool": name}


def _duration(seconds: float) -> str:
    is_number = isinstance(seconds, int | float) and 0.001 <= seconds < math.inf
    if not is_number:
        raise ConfigError("scrape_interval_s", f"{seconds!r}", allowed="seconds from 0.001")
    whole, ms = divmod(round(seconds * 1000), 1000)
    return f"{whole * 1000 + ms}ms" if ms else f"{whole}s"
