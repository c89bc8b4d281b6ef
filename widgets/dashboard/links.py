"""Where a reader's browser finds a page: here, or through a proxy. Pure."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

LINK_VARIABLE = "WORKBENCH_DASHBOARD_LINK"
HUB_VARIABLE = "JUPYTERHUB_SERVICE_PREFIX"

OWN_FIELDS = ("page", "port")


def link_template(link: str | None, environ: Mapping[str, str]) -> str | None:
    """The template to use: the one given, that of the environment, or JupyterHub's proxy.

    Variables of the environment are filled in; ``{page}`` and ``{port}`` are left.

    Raises:
        ConfigError: it names what is not there, lacks ``{page}``, or leads nowhere.
    """
    template = link or environ.get(LINK_VARIABLE)
    if template:
        return _fill(template, environ)
    if hub := environ.get(HUB_VARIABLE):
        return f"{_literal(hub.rstrip('/'))}/proxy/{{port}}/{{page}}"
    return None


def page_link(template: str, *, port: int, page: str) -> str:
    """The address of a page; ``page`` is its path on the server, without a slash in front."""
    return template.format(port=port, page=page)


def link_host(template: str | None) -> str | None:
    """The host (and port) that a template leads to; None where it only names a path."""
    return urlsplit(template).netloc.lower() or None if template else None


def _fill(template: str, environ: Mapping[str, str]) -> str:
    parts, names = [], []
    for text, name, spec, conversion in _parsed(template):
        parts.append(_literal(text))
        if name is None:
            continue
        names.append(name)
        if spec or conversion or not (name in OWN_FIELDS or name in environ):
            allowed = "{page}, {port} and variables of the environment"
            raise ConfigError("link", f"{{{name}}} is not known", allowed=allowed)
        parts.append(f"{{{name}}}" if name in OWN_FIELDS else _literal(environ[name]))
    filled = "".join(parts)
    if "page" not in names:
        raise ConfigError("link", f"{template!r} has no {{page}}")
    if not filled.startswith(("/", "http://", "https://")) or filled.startswith("//"):
        raise ConfigError("link", f"{template!r}", allowed="/path…, http://… or https://…")
    return filled


def _parsed(template: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError("link", f"{template!r}: {error}") from error


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
