"""A running Prometheus server: told to read its files again, and asked whether it did."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import yaml

from workbench.errors import ConfigError, WorkbenchError

_RELOADED = re.compile(rb"^prometheus_config_last_reload_successful (\S+)", re.MULTILINE)
_SHOWN = 500
"""Characters of a server's own words in an error."""


class PrometheusError(WorkbenchError):
    """A Prometheus server did not take the configuration, or cannot be reached."""


def reload_prometheus(url: str, *, timeout_s: float = 10.0) -> dict[str, Any]:
    """Make a server read its files again, and check that it did.

    Proxies of the environment are not used.

    Args:
        url: of the server, with its path prefix if it has one.
        timeout_s: for each of the three questions to it, in seconds.

    Returns:
        The configuration that it runs with now.

    Raises:
        ConfigError: the URL is refused.
        PrometheusError: it cannot be reached, has no ``--web.enable-lifecycle``, or does not take
            its configuration, in its own words; it then runs on with the one it had.
    """
    checked_url(url, "prometheus_url")
    _ask(url, "/-/reload", timeout_s, method="POST")
    reloaded = _RELOADED.search(_ask(url, "/metrics", timeout_s))
    if reloaded and float(reloaded[1]) != 1:
        raise PrometheusError(f"{url} says that its last reload failed; its log says why")
    try:
        running = json.loads(_ask(url, "/api/v1/status/config", timeout_s))["data"]["yaml"]
        config: dict[str, Any] = yaml.safe_load(running) or {}
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise PrometheusError(f"{url} does not say what it runs with: {error}") from error
    return config


def checked_url(url: str, field: str) -> str:
    """The URL.

    Raises:
        ConfigError: it is none of a web server; ``field`` says whose it is.
    """
    try:
        split = urlsplit(url)
        is_one = split.scheme in {"http", "https"} and bool(split.hostname)
    except (ValueError, TypeError, AttributeError):
        is_one = False
    if not is_one:
        raise ConfigError(field, f"{url!r}", allowed="http://host:port or https://host:port")
    return url


def _ask(url: str, path: str, timeout_s: float, method: str = "GET") -> bytes:
    request = urllib.request.Request(url.rstrip("/") + path, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode(errors="replace").strip()[:_SHOWN]
        if error.code == http.HTTPStatus.FORBIDDEN and "ifecycle" in said:
            said += " Start it with --web.enable-lifecycle, or reload it by SIGHUP."
        raise PrometheusError(f"{url}{path} answers {error.code}: {said}") from error
    except (OSError, http.client.HTTPException) as error:
        raise PrometheusError(f"{url} cannot be reached: {error}") from error
