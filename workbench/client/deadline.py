"""A deadline that says what it was spent on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from workbench.errors import DeadlineError, RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from workbench.client.generation import Generation


@asynccontextmanager
async def deadline(deadline_s: float | None, generation: Generation) -> AsyncIterator[None]:
    """:func:`asyncio.timeout` that raises this package's error; None for no limit.

    Raises:
        RequestError: it is no number of seconds.
        DeadlineError: it passed; says what kept the turn waiting for a replica, if something did.
    """
    if deadline_s is not None and not (
        isinstance(deadline_s, int | float) and 0 < deadline_s < float("inf")
    ):
        raise RequestError("deadline_s", f"{deadline_s!r}", allowed="seconds above 0, or None")
    clock = asyncio.get_running_loop().time
    started_s = clock()
    limit = asyncio.timeout(deadline_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        spent = clock() - started_s
        reason = f": {generation.waited_for}" if generation.waited_for else ""
        raise DeadlineError(
            f"no end after {spent:.1f} s (deadline_s={deadline_s}){reason}"
        ) from error
