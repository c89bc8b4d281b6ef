"""When a cluster's head is gone, whoever waits for its actors is told, and the cluster is left."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from workbench.cluster.vigil import MISSES, ClusterGoneError, Vigil, answers


class Head:
    """Answers each knock as it was told; the last one for good."""

    def __init__(self, *opens: bool) -> None:
        self.opens = list(opens)
        self.knocks = threading.Semaphore(0)
        self.left = threading.Event()

    def answers(self) -> bool:
        self.knocks.release()
        return self.opens.pop(0) if len(self.opens) > 1 else self.opens[0]

    def watched(self) -> Vigil:
        return Vigil(self.answers, self.left.set, period_s=0.001)

    def hear(self, knocks: int) -> None:
        for _ in range(knocks):
            assert self.knocks.acquire(timeout=10)


def test_a_head_that_answers_is_watched_until_nobody_cares():
    head = Head(True)
    vigil = head.watched()
    head.hear(5)
    vigil.stop()
    vigil.join()
    assert not vigil.gone
    assert not head.left.is_set()


def test_fewer_misses_in_a_row_than_it_takes_are_forgiven():
    head = Head(*([False] * (MISSES - 1) + [True]) * 3, True)
    vigil = head.watched()
    head.hear(3 * MISSES + 2)
    assert not vigil.gone
    vigil.stop()


def test_a_head_that_is_gone_is_left_once():
    head = Head(True, False)
    vigil = head.watched()
    vigil.join()
    assert vigil.gone
    assert head.left.is_set()
    assert not head.opens[0]


async def test_who_waits_is_told_and_so_is_who_asks_later():
    head = Head(False)
    never = asyncio.get_running_loop().create_future()
    vigil = Vigil(head.answers, head.left.set, period_s=0.05)
    with pytest.raises(ClusterGoneError):
        await vigil.answer(never)
    with pytest.raises(ClusterGoneError):
        await vigil.answer(asyncio.get_running_loop().create_future())


async def test_what_is_told_in_time_is_passed_on_and_so_are_errors():
    vigil = Head(True).watched()
    answer = asyncio.get_running_loop().create_future()
    answer.set_result(7)
    assert await vigil.answer(answer) == 7
    failure = asyncio.get_running_loop().create_future()
    failure.set_exception(OSError("no"))
    with pytest.raises(OSError, match="no"):
        await vigil.answer(failure)
    vigil.stop()


async def test_who_gives_up_waiting_is_not_told_that_the_cluster_is_gone():
    head = Head(True)
    vigil = head.watched()
    waiting = asyncio.create_task(vigil.answer(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    vigil.stop()


async def test_who_gives_up_just_when_the_cluster_goes_has_given_up():
    head = Head(True)
    vigil = head.watched()
    waiting = asyncio.create_task(vigil.answer(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0)
    head.opens = [False]
    vigil.join()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_knocking_at_a_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert answers(address)
    assert not answers(address)
