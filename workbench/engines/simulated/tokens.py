"""Where the tokens come from: a function of the seeds and of everything before them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class TokenSource:
    """The completion of one prompt.

    The n-th token depends on the context alone, so it is the same whether it comes from one attempt
    or after a resume, whose prompt holds the tokens so far. The hash grows with the context; each
    token costs the same.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        engine_seed: int,
        request_seed: object,
        vocab_size: int,
        stop_token: int,
        script: Sequence[int] = (),
    ) -> None:
        text = f"{engine_seed}/{request_seed}/" + ",".join(map(str, prompt))
        self._context = hashlib.blake2b(text.encode(), digest_size=8)
        self._vocab_size = vocab_size
        self._stop_token = stop_token
        self._script = script
        self._given = 0

    def next(self) -> int:
        """The next token. A script ends with the stop token."""
        if self._script:
            given, self._given = self._given, self._given + 1
            return self._script[given] if given < len(self._script) else self._stop_token
        token = int.from_bytes(self._context.digest(), "big") % self._vocab_size
        self._context.update(b",%d" % token)
        return token
