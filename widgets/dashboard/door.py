"""Who is let in: what a request's Host, Origin and cookie say. Pure.

A dashboard on loopback asks for no password, so two things must not reach it from a browser:

* *Another site's page.* It can open a websocket to any address. Browsers say where a page came from
  (``Origin``), and only our own pages may, or those at the address that ``link`` names.
* *A site whose name was made to point at this machine* (DNS rebinding). To the browser its pages
  are ours, but ``Host`` is its name. Without a password only names of this machine are answered
  to, and that of ``link``. A link without a host stands for a proxy of unknown name
  (JupyterHub's); then any name is.

Neither keeps out other users of this machine, who can reach loopback as well and forge both: give
a password against them. With one, only its cookie counts, which browsers show to no other site.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from widgets.dashboard.options import is_loopback


@dataclass(frozen=True, slots=True)
class Door:
    """The rules of one dashboard."""

    has_password: bool
    link_host: str | None = None
    """Host and port that the link template names."""
    has_link: bool = False

    def refusal(self, *, host: str, origin: str | None, acts: bool) -> str:
        """Why a request is refused; empty where it is not.

        Args:
            host: its ``Host``.
            origin: its ``Origin``, which programs and some proxies leave out.
            acts: it opens a websocket or changes something; reading needs no origin, since
                browsers do not show other sites what they read.
        """
        if not self._answers_to(host):
            return (
                f"this dashboard does not answer to {host!r}: open it as 127.0.0.1 or localhost, "
                "or name the address in link="
            )
        if acts and origin is not None and not self._is_own(origin, host):
            return f"pages from {origin!r} may not use this dashboard; name them in link="
        return ""

    def _answers_to(self, host: str) -> bool:
        if self.has_password or (self.has_link and self.link_host is None):
            return True
        return host.lower() == self.link_host or is_loopback(_name(host))

    def _is_own(self, origin: str, host: str) -> bool:
        return urlsplit(origin).netloc.lower() in {host.lower(), self.link_host} - {""}


def _name(host: str) -> str:
    """A host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
