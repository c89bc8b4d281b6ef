"""Blocks are equal exactly where prefixes are, and the index forgets in time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.routing.prefix import BLOCK_TOKENS, PrefixIndex, block_hashes

TOKENS = st.lists(st.integers(0, 3), max_size=200)


def prompt(*parts):
    """Chained blocks as small numbers: each says the whole path to it."""
    return tuple(int("".join(str(part) for part in parts[: i + 1])) for i in range(len(parts)))


def shared(one, other):
    """Length of the common beginning."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@settings(deadline=None)
@given(TOKENS, TOKENS, TOKENS)
def test_two_prompts_share_blocks_exactly_as_far_as_they_share_tokens(beginning, one, other):
    one, other = beginning + one, beginning + other
    assert shared(block_hashes(one), block_hashes(other)) == shared(one, other) // BLOCK_TOKENS
    assert len(block_hashes(one)) == len(one) // BLOCK_TOKENS


def test_a_block_is_another_one_after_another_beginning():
    same_end = [7] * BLOCK_TOKENS
    one, other = (
        block_hashes([1] * BLOCK_TOKENS + same_end),
        block_hashes([2] * BLOCK_TOKENS + same_end),
    )
    assert one[1] != other[1]


def test_block_hashes_are_the_same_in_two_fresh_processes():
    code = "from workbench.routing.prefix import block_hashes; print(block_hashes(range(100)))"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] == f"{block_hashes(range(100))}\n"


def test_a_match_counts_the_leading_blocks_of_each_replica():
    index = PrefixIndex()
    index.insert(prompt(1, 2, 3), "a")
    index.insert(prompt(1, 2, 4, 5), "b")
    index.insert(prompt(9), "c")
    assert index.match(prompt(1, 2, 3, 6)) == {"a": 3, "b": 2}
    assert index.match(prompt(1, 2, 4, 5)) == {"a": 2, "b": 4}
    assert index.match(prompt(8)) == {}
    assert index.match(()) == {}


def test_blocks_after_a_missing_one_do_not_count():
    index = PrefixIndex()
    index.insert((1,), "a")
    index.insert((2,), "b")
    assert index.match((1, 2)) == {"a": 1}


def test_the_longest_unused_is_forgotten_first():
    index = PrefixIndex(max_blocks=4)
    index.insert(prompt(1, 1), "a")
    index.insert(prompt(2, 2), "a")
    index.insert(prompt(1, 1), "a")  # used again
    index.insert(prompt(3, 3), "a")
    assert index.match(prompt(1, 1)) == {"a": 2}
    assert index.match(prompt(2, 2)) == {}


def test_a_prompt_loses_its_tail_before_its_head():
    index = PrefixIndex(max_blocks=3)
    index.insert(prompt(1, 2, 3, 4, 5), "a")
    assert index.match(prompt(1, 2, 3, 4, 5)) == {"a": 3}


def test_what_is_forgotten_of_one_replica_is_kept_of_the_others():
    index = PrefixIndex()
    index.insert(prompt(1, 2), "a")
    index.insert(prompt(1), "b")
    index.forget("a")
    index.forget("never known")
    assert index.match(prompt(1, 2)) == {"b": 1}
    assert len(index) == 1


def test_an_index_without_room_is_refused():
    with pytest.raises(ConfigError, match="max_blocks"):
        PrefixIndex(max_blocks=0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "insert", "forget"]),
        st.lists(st.integers(1, 3), min_size=1, max_size=6),
        st.sampled_from("abcd"),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(STEPS, st.integers(1, 30))
def test_the_index_stays_within_its_bound_and_never_claims_what_was_not_sent(steps, bound):
    index, sent = PrefixIndex(max_blocks=bound), {name: set() for name in "abcd"}
    for what, parts, name in steps:
        blocks = prompt(*parts)
        if what == "forget":
            index.forget(name)
            sent[name].clear()
        else:
            index.insert(blocks, name)
            sent[name].update(blocks)
        assert len(index) <= bound
        for holder, depth in index.match(blocks).items():
            assert depth > 0
            assert sent[holder].issuperset(blocks[:depth])


@settings(deadline=None)
@given(STEPS)
def test_with_room_for_all_the_index_knows_exactly_what_was_sent(steps):
    index, sent = PrefixIndex(), {name: set() for name in "abcd"}
    for what, parts, name in steps:
        blocks = prompt(*parts)
        if what == "forget":
            index.forget(name)
            sent[name].clear()
        else:
            index.insert(blocks, name)
            sent[name].update(blocks)
        known = {
            holder: shared(blocks, [b for b in blocks if b in seen])
            for holder, seen in sent.items()
        }
        assert index.match(blocks) == {holder: depth for holder, depth in known.items() if depth}
        assert len(index) == sum(map(len, sent.values()))


def test_replicas_that_come_and_go_for_ever_leave_nothing_behind():
    index, rng = PrefixIndex(max_blocks=20), random.Random(0)
    for i in range(1000):
        index.insert(tuple(rng.getrandbits(64) for _ in range(4)), f"replica-{i}")
    assert len(index) <= 20
    assert len(index._names) == len(index._bits) == len(index._counts) <= 20
