"""Figures over time, as everybody reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.metrics.columns import POOL_COLUMNS, REPLICA_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from workbench.metrics.columns import Column


@dataclass(frozen=True, slots=True)
class Block:
    """Figures over time. NaN is no value."""

    times_s: NDArray[np.float64]
    """[n] Rising, in seconds since 1970."""
    replica_ids: tuple[str, ...]
    """``replica-2`` before ``replica-10``."""
    replicas: NDArray[np.float32]
    """[n, replicas, REPLICA_COLUMNS]"""
    pool: NDArray[np.float32]
    """[n, POOL_COLUMNS]"""

    def __len__(self) -> int:
        return len(self.times_s)

    def replica(self, name: str) -> NDArray[np.float32]:
        """One figure of every replica, [n, replicas].

        Raises:
            ConfigError: there is no such figure.
        """
        return self.replicas[:, :, _index(REPLICA_COLUMNS, name)]

    def total(self, name: str) -> NDArray[np.float32]:
        """One figure of the pool, [n].

        Raises:
            ConfigError: there is no such figure.
        """
        return self.pool[:, _index(POOL_COLUMNS, name)]


def _index(columns: Sequence[Column], name: str) -> int:
    names = [column.name for column in columns]
    if name not in names:
        raise ConfigError("name", f"no figure is called {name!r}", allowed=names)
    return names.index(name)
