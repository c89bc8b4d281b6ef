"""Virtual time costs no time, is exact, and says when nothing can happen any more."""

from __future__ import annotations

import asyncio
import random

import pytest

from workbench.engines.virtual_clock import VirtualClockLoop, VirtualDeadlockError, run_virtual


def now():
    return asyncio.get_running_loop().time()


async def sleep_then(delay_s, log):
    await asyncio.sleep(delay_s)
    log.append((now(), delay_s))


def test_weeks_pass_within_a_test():
    async def main():
        await asyncio.sleep(40 * 86_400)
        return now()

    assert run_virtual(main()) == 40 * 86_400


def test_time_begins_where_it_is_told_to():
    async def main():
        await asyncio.sleep(0.1)
        return now()

    assert run_virtual(main(), start_s=1e9) == 1e9 + 0.1


def test_timers_come_in_their_order_at_their_times():
    async def main():
        log = []
        await asyncio.gather(*(sleep_then(s, log) for s in delays))
        return log

    draw = random.Random(0)
    delays = [10 ** draw.uniform(-6, 6) for _ in range(300)]
    assert run_virtual(main()) == [(s, s) for s in sorted(delays)]


def test_times_that_floats_cannot_add_up_are_still_those_of_the_timers():
    async def main():
        due = []
        for _ in range(1000):
            due.append(now() + 0.1)
            await asyncio.sleep(0.1)
            assert now() == due[-1]

    run_virtual(main())


def test_what_is_ready_runs_before_time_goes_on():
    async def main():
        log = []
        timer = asyncio.create_task(sleep_then(0.5, log))
        for _ in range(100):
            await asyncio.sleep(0)
            assert now() == 0.0
        await timer
        return log

    assert run_virtual(main()) == [(0.5, 0.5)]


def test_a_cancelled_timer_does_not_move_time():
    async def main():
        task = asyncio.create_task(asyncio.sleep(3600))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        return now()

    assert run_virtual(main()) == 2.0


def test_timeouts_are_timers():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return now()

    assert run_virtual(main()) == 30.0


def test_a_deadlock_is_an_error_that_names_who_waits():
    async def main():
        asyncio.current_task().set_name("the one")
        await asyncio.sleep(2)
        await asyncio.Event().wait()

    with pytest.raises(VirtualDeadlockError, match=r"at 2.0 s .* waiting: the one$"):
        run_virtual(main())


def test_who_waits_in_a_deadlock_is_cancelled():
    log = []

    async def main():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    with pytest.raises(VirtualDeadlockError):
        run_virtual(main())
    assert log == ["cancelled"]


def test_the_error_of_the_main_coroutine_comes_out():
    async def main():
        await asyncio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main())


def test_tasks_that_are_left_are_cancelled_at_the_end():
    async def main():
        return asyncio.create_task(asyncio.sleep(3600))

    assert run_virtual(main()).cancelled()


def test_the_loop_can_be_used_by_a_runner():
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(asyncio.sleep(5))
        runner.run(asyncio.sleep(6))
        assert runner.get_loop().time() == 11.0
