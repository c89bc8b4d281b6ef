"""Rows that begin alike, computed once where they do: a tree of tokens.

The rollouts of a group begin with the same prompt, those of different tasks often with the same
examples, and a segment that forks with its parent's tokens. Each token is a node that attends to
itself and to what leads to it, at its depth as position, so that what a row gets is what it would
get alone.

Pure numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Array = npt.NDArray[Any]

ROOT = -1


class TokenTree:
    """Nodes are numbered as they come, so that a parent's number is below its children's."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def missing(self, ids: Sequence[int]) -> int:
        """How many nodes a row would add."""
        at = ROOT
        for depth, token in enumerate(ids):
            found = self._children.get((at, token))
            if found is None:
                return len(ids) - depth
            at = found
        return 0

    def add(self, ids: Sequence[int]) -> list[int]:
        """The node of each of a row's tokens."""
        path, at = [], ROOT
        for token in ids:
            found = self._children.get((at, token))
            if found is None:
                found = self._children[at, token] = len(self.ids)
                self.ids.append(token)
                self.parents.append(at)
            path.append(found)
            at = found
        return path

    def positions(self) -> Array:
        """[N] int64: how many tokens lead to each."""
        depths = np.zeros(len(self), dtype=np.int64)
        for node, parent in enumerate(self.parents):
            if parent != ROOT:
                depths[node] = depths[parent] + 1
        return depths

    def mask(self) -> Array:
        """[N, N] bool: whether the node of the row sees that of the column."""
        sees = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent != ROOT:
                sees[node] = sees[parent]
            sees[node, node] = True
        return sees


class Pack(NamedTuple):
    """Rows that are computed together."""

    tree: TokenTree
    numbers: list[int]
    """Which rows, of those that were given."""
    paths: list[list[int]]
    """For each of them, the node of each of its tokens."""


def packed(rows: Iterable[Sequence[int]], tokens: int) -> list[Pack]:
    """Rows as trees, none larger than so many tokens.

    Rows stay in order, for neighbours share the most. One that is longer has a tree of its own.
    """
    packs: list[Pack] = []
    for number, ids in enumerate(rows):
        if not packs or len(packs[-1].tree) + packs[-1].tree.missing(ids) > tokens:
            packs.append(Pack(TokenTree(), [], []))
        packs[-1].numbers.append(number)
        packs[-1].paths.append(packs[-1].tree.add(ids))
    return packs
