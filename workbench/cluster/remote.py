"""An actor as this process reaches it, for as long as its cluster lives."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from workbench.cluster.connection import current_vigil
from workbench.cluster.vigil import ClusterGoneError

if TYPE_CHECKING:
    from workbench.cluster.vigil import Vigil


class Remote:
    """A handle that fails at once where Ray's own would wait for a cluster that is gone."""

    __slots__ = ("_in_cluster", "_vigil", "handle")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._vigil: Vigil | None = current_vigil()
        self._in_cluster = ray.is_initialized()

    def __reduce__(self) -> tuple[Any, ...]:
        return Remote, (self.handle,)  # whoever gets it has a place of its own in the cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and self.handle == other.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    @property
    def gone(self) -> bool:
        """Whether its cluster is, or this process was made to leave it.

        What an actor is told then would reach nobody, or another one, or start a cluster.
        """
        left = self._in_cluster and not ray.is_initialized()
        return left or (self._vigil is not None and self._vigil.gone)

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method and wait for what it returns.

        Raises:
            ClusterGoneError: the cluster is gone.
            RayError: as Ray has it; see :func:`workbench.cluster.ports.our_errors`.
        """
        if self.gone:
            raise ClusterGoneError
        return await self.answer(getattr(self.handle, method).remote(*args, **options))

    async def answer(self, reply: Any) -> Any:
        """What a call that is under way returns; errors as those of :meth:`ask`."""
        return await (self._vigil.answer(reply) if self._vigil else reply)

    def tell(self, method: str, *args: Any) -> None:
        """Call a method and wait for nothing."""
        if not self.gone:
            getattr(self.handle, method).remote(*args)

    def kill(self) -> None:
        """End the actor, if it still runs."""
        if not self.gone:
            with contextlib.suppress(RayError):
                ray.kill(self.handle)
