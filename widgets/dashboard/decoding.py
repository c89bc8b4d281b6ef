"""Token ids in words, once a tokenizer is there: loading one takes seconds."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from workbench.decoding import decoder, remember

if TYPE_CHECKING:
    from collections.abc import Callable

    from workbench.decoding import Decode

log = logging.getLogger(__name__)


class Decoder:
    """Loads a tokenizer when it is first asked for, and meanwhile has none.

    Args:
        load: a model's reference → its tokenizer's ``decode``. Called once for each, in a thread.
        loaded: called from that thread when there is one.
    """

    def __init__(self, load: Callable[[str], Decode], loaded: Callable[[], None]) -> None:
        self._load = load
        self._loaded = loaded
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._decodes: dict[str, Decode] = {}

    def of(self, model: str) -> Decode | None:
        """The model's ``decode``; None while there is none, and where none can be."""
        with self._lock:
            if model not in self._asked:
                self._asked.add(model)
                threading.Thread(
                    target=self._run, args=(model,), name="workbench-tokenizer", daemon=True
                ).start()
            return self._decodes.get(model)

    def _run(self, model: str) -> None:
        try:
            self._decodes[model] = self._load(model)
        except Exception:  # tokens are shown by their ids then
            log.warning("no tokenizer of %r: tokens are shown by their ids", model, exc_info=True)
        else:
            self._loaded()


def load_decode(model: str) -> Decode:
    """The ``decode`` of a model's tokenizer, which this process remembers.

    Raises:
        ConfigError: there is no such model here.
    """
    known = decoder(model)
    if known is not None:
        return known
    from workbench.models import resolve_model
    from workbench.rollout.rendering import make_renderer

    decode = make_renderer(str(resolve_model(model)), model).decode
    remember(model, decode)
    return decode
