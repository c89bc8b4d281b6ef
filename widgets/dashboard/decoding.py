"""Token ids in words, once the pool's tokenizer is there: loading one takes seconds."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from widgets.pictures.tokens import Decode

log = logging.getLogger(__name__)


class Decoder:
    """Loads a tokenizer when it is first asked for, and meanwhile has none.

    Args:
        load: a model's reference → its tokenizer's ``decode``. Called once, in a thread.
        loaded: called from that thread when there is one.
    """

    def __init__(self, load: Callable[[str], Decode], loaded: Callable[[], None]) -> None:
        self._load = load
        self._loaded = loaded
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._decode: Decode | None = None

    def of(self, model: str) -> Decode | None:
        """The ``decode`` of the pool's model; None while there is none, and where none can be."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(model,), name="workbench-tokenizer", daemon=True
                )
                self._thread.start()
            return self._decode

    def _run(self, model: str) -> None:
        try:
            self._decode = self._load(model)
        except Exception:  # tokens are shown by their ids then
            log.warning("no tokenizer of %r: tokens are shown by their ids", model, exc_info=True)
        else:
            self._loaded()


def load_decode(model: str) -> Decode:
    """The ``decode`` of a model's tokenizer.

    Raises:
        ConfigError: there is no such model here.
    """
    from workbench.models import resolve_model
    from workbench.rollout.rendering import make_renderer

    return make_renderer(str(resolve_model(model)), model).decode
