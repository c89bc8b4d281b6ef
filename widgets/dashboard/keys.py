"""The password and the cookies that stand for it."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from typing import TYPE_CHECKING

from tornado.web import create_signed_value, decode_signed_value

if TYPE_CHECKING:
    from tornado.httputil import HTTPServerRequest

STAY_DAYS = 7
"""How long a browser stays logged in, if the server lives so long."""

WRONG_S = 0.5
"""How long a wrong password takes, one after another: two guesses a second, however many ask."""


class Keys:
    """Who may look. The secrets are new with every server.

    Args:
        password: to ask for; None lets everybody in.
        port: of the server. It is in the cookie's name: browsers send cookies to all ports of a
            host, and two dashboards must not log each other out.
    """

    def __init__(self, password: str | None, port: int) -> None:
        self._password = password
        self._secret = secrets.token_bytes(32)
        self._guess = asyncio.Lock()
        self.cookie_name = f"workbench-{port}"
        self.stay_days = STAY_DAYS

    @property
    def is_needed(self) -> bool:
        """Whether there is a password."""
        return self._password is not None

    async def fits(self, given: str) -> bool:
        """Whether it is the password. The answer takes as long whatever is wrong with it."""
        async with self._guess:
            wanted = (self._password or "").encode()
            if self.is_needed and hmac.compare_digest(given.encode(errors="replace"), wanted):
                return True
            await asyncio.sleep(WRONG_S)
            return False

    def cookie(self) -> bytes:
        """What a browser shows from now on."""
        return create_signed_value(self._secret, self.cookie_name, "in")

    def opens(self, request: HTTPServerRequest) -> bool:
        """Whether a request shows such a cookie, or none is needed."""
        if not self.is_needed:
            return True
        cookie = request.cookies.get(self.cookie_name)
        shown = cookie.value if cookie else None
        name, secret = self.cookie_name, self._secret
        return decode_signed_value(secret, name, shown, max_age_days=STAY_DAYS) == b"in"
