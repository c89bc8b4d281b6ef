"""What is left of a client when its loop or its balancer ends."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.unit.inprocess import PROMPT, generate, simulated_pool, until, virtually
from workbench.errors import RequestError


async def test_a_loop_that_ends_says_goodbye_for_its_client():
    """As ``asyncio.run(client.generate(…))`` does: what is still running is cancelled."""
    async with simulated_pool(report_s=0.05) as pool:
        client = pool.client()
        await generate(client)
        assert pool.balancer.snapshot().clients == 1
        for task in asyncio.all_tasks():
            if task.get_name() in {"lease-watch", "lease-reporter"}:
                task.cancel()
        await until(lambda: pool.balancer.snapshot().clients == 0)
        assert pool.in_flight == 0


@pytest.mark.parametrize("policy", ["least-loaded", "prefix-aware", "kv-aware"])
@virtually
async def test_pins_come_back_under_policies_that_are_asked_for_every_turn(policy):
    async with simulated_pool(policy=policy) as pool:
        client = pool.client()
        names = [f"s{i}" for i in range(6)]
        for name in names:
            await generate(client, name)
        before = pool.balancer.pins()
        await pool.kill_balancer()
        pool.restart_balancer()
        await until(lambda: pool.balancer.pins() == before)


@virtually
async def test_a_cursor_goes_on_through_the_lives_of_the_balancer():
    async with simulated_pool() as pool:
        client = pool.client()
        await generate(client)
        await until(lambda: pool.in_flight == 0)
        cursor = pool.balancer.events().cursor
        await pool.kill_balancer()
        pool.restart_balancer()
        await generate(client, "t")
        await until(lambda: pool.in_flight == 0)
        page = pool.balancer.events(cursor)
        assert {event.session_id for event in page.items} >= {"t"}
        assert (page.lost, page.items[0].number > cursor) == (0, True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request_id": None}, "request_id"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": ["s"]}, "request_id"),
        ({"prompt_ids": None}, "prompt_ids"),
        ({"prompt_ids": "hello"}, "prompt_ids"),
        ({"sampling_params": None}, "sampling_params"),
        ({"deadline_s": math.nan}, "deadline_s"),
        ({"deadline_s": "x"}, "deadline_s"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"image_data": [b"png"]}, "image_data"),
    ],
)
async def test_a_wrong_argument_is_refused_by_its_field_before_anything_is_asked(changes, field):
    asked = {"request_id": "s", "prompt_ids": PROMPT, "sampling_params": {"max_tokens": 2}}
    async with simulated_pool() as pool:
        client = pool.client()
        with pytest.raises(RequestError, match=f"^{field}: ") as caught:
            await client.generate(**{**asked, **changes})
        assert caught.value.allowed
        assert pool.port.reports == []
        output = await client.generate(**asked, image_data=None)
        assert len(output.token_ids) == 2
