"""Rendering happens apart from the event loop, one piece after the other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.unit.chat import ids, renderer
from workbench.rollout.stage import RenderStage, StagedRenderer

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def stage():
    made = RenderStage()
    yield made
    made.close()


async def test_the_event_loop_goes_on_while_something_is_rendered(stage):
    go, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow():
        loop.call_soon_threadsafe(began.set)
        assert go.wait(20)
        return threading.current_thread()

    working = asyncio.ensure_future(stage.run(slow))
    await began.wait()  # this loop could hear of it
    go.set()
    assert await working is not threading.current_thread()


async def test_pieces_are_done_in_the_order_of_asking_and_never_two_at_once(stage):
    log, inside = [], threading.Lock()

    def piece(number):
        assert inside.acquire(blocking=False)
        log.append(number)
        inside.release()

    await asyncio.gather(*(stage.run(piece, number) for number in range(50)))
    assert log == list(range(50))


async def test_what_was_given_up_while_it_waited_is_not_done(stage):
    go, done = threading.Event(), []
    first = asyncio.ensure_future(stage.run(go.wait, 20))
    second = asyncio.ensure_future(stage.run(done.append, "second"))
    third = asyncio.ensure_future(stage.run(done.append, "third"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert done == ["third"]


async def test_an_error_comes_to_who_asked(stage):
    with pytest.raises(ZeroDivisionError):
        await stage.run(lambda: 1 / 0)


@pytest.mark.parametrize("staged", [True, False])
async def test_a_renderer_is_the_same_on_a_stage_and_without_one(stage, staged):
    plain, render = renderer(), StagedRenderer(renderer(), stage if staged else None)
    prompt_ids = await render.prompt(HELLO)
    assert prompt_ids == plain.prompt(HELLO)
    said = ids("yes<|im_end|>")
    assert await render.extend(prompt_ids, said, HELLO) == plain.extend(prompt_ids, said, HELLO)
    assert await render.parse(said) == plain.parse(said)
    assert await render.decode(said) == plain.decode(said)
