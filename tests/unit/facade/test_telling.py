"""A batch tells its pool in messages of bounded size, and waits for it no longer than it said."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace

from workbench.engines.virtual_clock import run_virtual
from workbench.facade import telling
from workbench.facade.telling import TELL_S, Teller, that_fit
from workbench.trajectory import RolloutStatus, Trajectory


def ended(number: int, text: str = "", **task: object) -> Trajectory:
    return Trajectory(
        f"r{number}", "g", number, "single_turn", {"prompt": text, **task}, (), (), (), (),
        RolloutStatus.DONE, None,
    )  # fmt: skip


def batch(trajectories):
    return SimpleNamespace(
        name="batch", trajectories=lambda: list(trajectories), snapshot=lambda: "a snapshot"
    )


def test_what_does_not_fit_into_a_message_is_left_out_of_it():
    three = [ended(n, "x" * 1000) for n in range(3)]
    one = len(pickle.dumps(three[0], pickle.HIGHEST_PROTOCOL))
    assert that_fit(three, 2 * one) == (three[:2], 2)
    assert that_fit(three, one - 1) == ([], 3)
    assert that_fit([], 10) == ([], 0)


def test_each_rollout_is_told_once():
    known, messages = [ended(0)], []

    async def story():
        async def note(snapshot, trajectories):
            messages.append((snapshot, [t.rollout_id for t in trajectories]))

        teller = Teller(batch(known), note)
        await teller.tell()
        known.extend([ended(1), ended(2)])
        await teller.tell()
        await teller.tell()

    run_virtual(story())
    assert messages == [("a snapshot", ["r0"]), ("a snapshot", ["r1", "r2"]), ("a snapshot", [])]


def test_a_pool_that_hangs_is_given_up_on():
    async def story():
        async def never(*_):
            await asyncio.Event().wait()

        await Teller(batch([]), never).tell()
        return asyncio.get_running_loop().time()

    assert run_virtual(story()) == TELL_S


def test_what_cannot_be_sent_is_left_out_and_the_rest_told():
    messages = []

    async def note(_, trajectories):
        messages.extend(trajectories)

    last = ended(1)
    run_virtual(Teller(batch([ended(0, secret=lambda: None), last]), note).tell())
    assert messages == [last]


def test_what_was_not_heard_is_told_again_and_what_did_not_fit_goes_with_the_next(monkeypatch):
    four = [ended(n, "x" * 1000) for n in range(4)]
    one = len(pickle.dumps(four[0], pickle.HIGHEST_PROTOCOL))
    monkeypatch.setattr(telling, "MESSAGE_BYTES", 3 * one)
    heard, fails = [], [OSError("away"), None, None]

    async def note(_, trajectories):
        if error := fails.pop(0):
            raise error
        heard.append([t.rollout_id for t in trajectories])

    run_virtual(Teller(batch(four), note).tell_all())
    assert heard == [["r0", "r1", "r2"], ["r3"]]
