"""Blocks are counted, found again, and evicted least recently used first."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workbench.engines.simulated.cache import BlockCache


def fill(cache, *keys):
    """Blocks of one request, full and registered."""
    blocks = cache.acquire((), len(keys))
    for block, key in zip(blocks, keys, strict=True):
        cache.register(block, key)
    return blocks


def known(cache, *keys):
    return [key for key in keys if cache.match([key])]


def test_a_released_block_is_found_again_and_referenced_again():
    cache = BlockCache(4)
    cache.release(fill(cache, b"a", b"b"))
    assert (cache.referenced, cache.resting, cache.free) == (0, 2, 2)
    hits = cache.match([b"a", b"b", b"c"])
    assert len(hits) == 2
    assert cache.acquire(hits, 1)[:2] == hits
    assert (cache.referenced, cache.resting, cache.free) == (3, 0, 1)
    cache.check()


def test_a_run_ends_at_the_first_key_that_is_not_there():
    cache = BlockCache(4)
    fill(cache, b"a", b"c")
    assert len(cache.match([b"a", b"b", b"c"])) == 1


def test_a_block_that_two_hold_counts_once_and_rests_after_both():
    cache = BlockCache(4)
    mine = fill(cache, b"a")
    yours = cache.acquire(cache.match([b"a"]), 0)
    assert cache.referenced == 1
    cache.release(mine)
    assert (cache.referenced, cache.resting) == (1, 0)
    cache.release(yours)
    assert (cache.referenced, cache.resting) == (0, 1)


def test_a_block_that_is_not_full_is_free_when_it_is_released():
    cache = BlockCache(2)
    cache.release(cache.acquire((), 2))
    assert (cache.resting, cache.free) == (0, 2)


def test_a_second_block_of_the_same_content_stays_private():
    cache = BlockCache(2)
    first, second = fill(cache, b"a"), fill(cache, b"a")
    cache.release(second)
    assert (cache.resting, cache.free) == (0, 1)
    assert cache.match([b"a"]) == first
    cache.check()


def test_free_blocks_are_used_before_any_is_evicted():
    cache = BlockCache(3)
    cache.release(fill(cache, b"a"))
    cache.acquire((), 2)
    assert known(cache, b"a") == [b"a"]


def test_the_least_recently_used_is_evicted_and_of_one_request_its_tail_first():
    cache = BlockCache(4)
    for keys in ([b"a1", b"a2"], [b"b1", b"b2"]):
        cache.release(fill(cache, *keys))
    everything = (b"a1", b"a2", b"b1", b"b2")
    cache.release(cache.acquire(cache.match([b"a1"]), 0))
    remaining = []
    for _ in range(4):
        cache.acquire((), 1)
        remaining.append(known(cache, *everything))
    assert remaining == [[b"a1", b"b1", b"b2"], [b"a1", b"b1"], [b"a1"], []]


def test_a_referenced_block_is_never_evicted():
    cache = BlockCache(2)
    fill(cache, b"a")
    cache.acquire((), 1)
    assert cache.acquire((), 1) is None
    assert known(cache, b"a") == [b"a"]


def test_the_blocks_that_were_found_are_not_evicted_for_their_own_request():
    cache = BlockCache(2)
    cache.release(fill(cache, b"a", b"b"))
    assert cache.acquire(cache.match([b"a", b"b"]), 1) is None
    assert (cache.referenced, cache.resting, cache.free) == (0, 2, 0)
    cache.check()


def test_nothing_is_found_after_a_clear():
    cache = BlockCache(3)
    held = fill(cache, b"a")
    cache.release(fill(cache, b"b"))
    cache.clear()
    assert known(cache, b"a", b"b") == []
    cache.check()
    cache.release(held)
    assert (cache.resting, cache.free) == (0, 3)


def test_usage_is_the_share_that_is_referenced():
    cache = BlockCache(4)
    cache.release(fill(cache, b"a"))
    cache.acquire((), 1)
    assert cache.usage == 0.25
    boundless = BlockCache(None)
    boundless.acquire((), 1000)
    assert boundless.usage == 0.0
    boundless.check()


EVERYTHING = [f"{family}{i}".encode() for family in "abc" for i in range(5)]


class CacheMachine(RuleBasedStateMachine):
    """Requests that come and go; the content of block i of family f has the key (f, i)."""

    def __init__(self):
        super().__init__()
        self.cache = BlockCache(6)
        self.held = []

    @rule(family=st.sampled_from("abc"), count=st.integers(1, 5), full=st.integers(0, 5))
    def take(self, family, count, full):
        keys = [f"{family}{i}".encode() for i in range(count)]
        hits = self.cache.match(keys)
        before = (self.cache.referenced, self.cache.resting, self.cache.free)
        findable, evicted = len(known(self.cache, *EVERYTHING)), self.cache.num_evicted
        blocks = self.cache.acquire(hits, count - len(hits))
        gone = findable - len(known(self.cache, *EVERYTHING))
        assert self.cache.num_evicted - evicted == gone
        if blocks is None:
            assert before == (self.cache.referenced, self.cache.resting, self.cache.free)
            assert not gone
            return
        assert [block.key for block in blocks[: len(hits)]] == keys[: len(hits)]
        for block, key in list(zip(blocks, keys, strict=True))[len(hits) : full]:
            self.cache.register(block, key)
        self.held.append(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        self.cache.release(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule()
    def clear(self):
        self.cache.clear()

    @invariant()
    def the_books_add_up(self):
        self.cache.check()
        assert self.cache.referenced == len({block for blocks in self.held for block in blocks})
        for blocks in self.held:
            assert all(block.references for block in blocks)


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_the_books_add_up_whatever_comes = CacheMachine.TestCase
