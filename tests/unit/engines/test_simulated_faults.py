"""Faults on demand: each breaks what it says, when it says."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.engines.test_simulated import (
    collect,
    complete,
    engine,
    in_virtual_time,
    now,
    request,
)
from workbench.engines.host import EngineHost
from workbench.engines.simulated import Fault, FaultKind, SimulatedArgs, SimulatedEngine
from workbench.errors import ReplicaDiedError, ReplicaLostError, RequestError

STEP = {"step_s": 1.0, "stop_token": -1}


@in_virtual_time
async def test_a_crash_is_raised_by_drain_as_it_is_and_add_says_that_the_engine_died():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(1.5)
        made.inject(Fault(FaultKind.CRASH), KeyError("a bug"))
        await made.wait(1000.0)
        assert now() == 1.5
        with pytest.raises(KeyError, match="a bug"):
            made.drain()
        with pytest.raises(ReplicaDiedError, match=r"replica-0 died: KeyError: 'a bug'"):
            await made.add(request(request_id="late"))
        await asyncio.sleep(10)
        assert made.figures().generation_tokens == 1


@in_virtual_time
async def test_a_crash_ends_every_request_at_the_host():
    host = EngineHost("replica-0", SimulatedEngine("replica-0", SimulatedArgs(**STEP)))
    await host.start()
    host._engine.inject(Fault(FaultKind.CRASH, after_tokens=3))
    await host.submit("channel", [request()])
    await asyncio.sleep(5.0)
    _, deltas = await host.collect("channel", 0)
    assert sum(len(delta.token_ids) for delta in deltas) == 2
    assert isinstance(deltas[-1].error, ReplicaDiedError)
    assert "RuntimeError: simulated crash" in str(deltas[-1].error)
    await host.close()


@pytest.mark.parametrize("how", ["argument", "fault", "older argument"])
@in_virtual_time
async def test_death_comes_after_the_step_that_reaches_the_number_of_tokens(how):
    death = Fault(FaultKind.DEATH, after_tokens=5)
    args = {"older argument": {"die_after_tokens": 5}, "argument": {"faults": (death,)}}
    async with engine(**STEP, **args.get(how, {})) as made:
        if how == "fault":
            made.inject(death)
        for name in "ab":
            await made.add(request(request_id=name))
        await asyncio.sleep(2.5)
        assert len(made.drain()) == 2
        await asyncio.sleep(1.0)
        assert made.figures().generation_tokens == 6
        with pytest.raises(ReplicaDiedError, match="replica-0"):
            made.drain()


@in_virtual_time
async def test_tokens_until_a_fault_are_counted_from_its_injection():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(3.5)
        made.inject(Fault(FaultKind.DEATH, after_tokens=2))
        await asyncio.sleep(1.0)
        made.drain()
        await asyncio.sleep(1.0)
        with pytest.raises(ReplicaDiedError):
            made.drain()


@in_virtual_time
async def test_an_engine_dies_on_command_and_the_first_cause_stays():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(0.5)
        made.die("pulled the plug")
        made.die("again")
        await made.wait(1000.0)
        assert now() == 0.5
        with pytest.raises(ReplicaDiedError, match="pulled the plug"):
            made.drain()
        with pytest.raises(ReplicaDiedError, match="pulled the plug"):
            await made.add(request(request_id="late"))


@in_virtual_time
async def test_a_hung_engine_takes_requests_and_makes_no_step_until_it_is_released():
    async with engine(**STEP) as made:
        await made.add(request(max_tokens=3))
        await asyncio.sleep(1.5)
        made.inject(Fault(FaultKind.HANG))
        await made.add(request(request_id="late", max_tokens=1))
        await asyncio.sleep(98.5)
        assert made.figures().generation_tokens == 1
        made.release()
        deltas = await collect(made, "r", "late", wait_s=1000)
        assert now() == 100.0 + 1.0  # the step that hung ends with the hang
    assert deltas["late"][-1].queue_s == 98.5


@in_virtual_time
async def test_a_fault_that_was_due_happens_once():
    async with engine(**STEP, faults=(Fault("hang", after_tokens=2),)) as made:
        await made.add(request(max_tokens=5))
        await asyncio.sleep(50.0)
        assert made.figures().generation_tokens == 2
        made.release()
        await collect(made, "r", wait_s=1000)
        assert now() == 50.0 + 3.0


@in_virtual_time
async def test_an_engine_can_hang_after_some_tokens_and_end_its_requests_still():
    async with engine(**STEP, faults=({"kind": "hang", "after_tokens": 2},)) as made:
        await made.add(request())
        await asyncio.sleep(50.0)
        assert made.figures().generation_tokens == 2
        await made.abort(["r"])
        (delta,) = made.drain()
    assert len(delta.token_ids) == 2


@pytest.mark.parametrize("busy", [True, False])
@in_virtual_time
async def test_a_hung_engine_answers_neither_pauses_nor_updates(busy):
    async with engine(**STEP) as made:
        if busy:
            await made.add(request())
            await asyncio.sleep(0.5)
        made.inject(Fault(FaultKind.HANG))
        for call in (made.pause("keep"), made.update_version(1)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(100):
                    await call
        made.release()
        await made.update_version(1)


@in_virtual_time
async def test_a_hung_engine_can_die():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(0.5)
        made.inject(Fault(FaultKind.HANG))
        await asyncio.sleep(5.0)
        made.die()
        with pytest.raises(ReplicaDiedError):
            made.drain()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_slow_engine_takes_longer_steps_until_it_is_released():
    async with engine(**STEP) as made:
        made.inject(Fault(FaultKind.SLOW, factor=2.0))
        await complete(made, max_tokens=2)
        assert now() == 4.0
        made.release()
        await complete(made, max_tokens=2)
        assert now() == 6.0


@in_virtual_time
async def test_the_next_requests_are_refused_and_those_after_them_taken():
    async with engine(**STEP) as made:
        made.inject(Fault(FaultKind.REFUSE, requests=2))
        made.inject(Fault(FaultKind.REFUSE), RequestError("prompt_ids", "is rude"))
        for kind in (ReplicaLostError, ReplicaLostError, RequestError):
            with pytest.raises(kind):
                await made.add(request())
        await made.add(request())
        assert made.figures().waiting == 1


@in_virtual_time
async def test_refusals_that_nobody_met_end_with_the_release_and_what_is_not_due_stays_armed():
    async with engine(**STEP, faults=(Fault("refuse", requests=9), Fault("death", 2))) as made:
        made.release()
        await made.add(request())
        await asyncio.sleep(2.5)
        with pytest.raises(ReplicaDiedError):
            made.drain()


# -- weights, starts and stalls --------------------------------------------------------------


@in_virtual_time
async def test_a_start_and_a_load_take_what_they_are_said_to_take():
    async with engine(start_s=3.0, load_s=2.0) as made:
        assert now() == 3.0
        await made.load_weights("anywhere", 1)
        assert now() == 5.0


@in_virtual_time
async def test_weights_cannot_be_loaded_as_often_as_that_was_injected_and_the_version_stays():
    async with engine(**STEP, faults=({"kind": "load"},)) as made:
        made.inject(Fault(FaultKind.LOAD), OSError("half a file"))
        for told in ("simulated broken weights", "half a file"):
            with pytest.raises((RuntimeError, OSError), match=told):
                await made.load_weights("anywhere", 1)
        assert (await complete(made, max_tokens=1))[1][-1].version == 0
        await made.load_weights("anywhere", 2)
        assert (await complete(made, max_tokens=1))[1][-1].version == 2


@in_virtual_time
async def test_an_engine_is_stalled_from_its_last_step_on_while_it_has_what_it_may_serve():
    async with engine(**STEP) as made:
        await asyncio.sleep(100.0)
        assert made.figures().stalled_s == 0.0, "it had nothing to do"
        await made.add(request(max_tokens=9))
        await asyncio.sleep(0.5)
        assert made.figures().stalled_s == 0.5
        await asyncio.sleep(0.75)
        assert made.figures().stalled_s == 0.25
        made.inject(Fault(FaultKind.HANG))
        await asyncio.sleep(50.0)
        assert made.figures().stalled_s == 50.25
        made.release()
        await collect(made, "r", wait_s=1000)
        await asyncio.sleep(100.0)
        assert made.figures().stalled_s == 0.0


@in_virtual_time
async def test_a_paused_engine_is_not_stalled_but_one_that_hangs_before_its_requests_end_is():
    async with engine(**STEP) as made:
        await made.add(request())
        await asyncio.sleep(0.5)
        await made.pause("keep")
        await asyncio.sleep(50.0)
        assert made.figures().stalled_s == 0.0
        await made.resume()
        assert made.figures().stalled_s == 0.0
        await asyncio.sleep(0.5)
        made.inject(Fault(FaultKind.HANG))
        pausing = asyncio.ensure_future(made.pause("wait"))
        await asyncio.sleep(50.0)
        assert made.figures().stalled_s == 50.5
        pausing.cancel()
        await asyncio.wait([pausing])
