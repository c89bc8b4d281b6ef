"""Rows that share their beginnings are computed as if each were alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.learner.tree import TokenTree, packed

rows = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=9)


@given(rows, st.integers(1, 20))
def test_each_token_sees_what_leads_to_it_and_nothing_else(found, tokens):
    packs = packed(found, tokens)
    assert [number for pack in packs for number in pack.numbers] == list(range(len(found)))
    for pack in packs:
        assert len(pack.tree) <= tokens or len(pack.numbers) == 1
        sees, positions = pack.tree.mask(), pack.tree.positions()
        for number, path in zip(pack.numbers, pack.paths, strict=True):
            ids = found[number]
            assert [pack.tree.ids[node] for node in path] == ids
            assert positions[path].tolist() == list(range(len(ids)))
            for place, node in enumerate(path):
                assert np.flatnonzero(sees[node]).tolist() == sorted(path[: place + 1])


def test_what_rows_share_is_there_once():
    tree = TokenTree()
    tree.add([1, 2, 3, 4])
    assert tree.missing([1, 2, 9]) == 1
    assert tree.missing([1, 2, 3]) == 0
    tree.add([1, 2, 9])
    assert len(tree) == 5
