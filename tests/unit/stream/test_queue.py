"""Who waits is woken, what was lost on its way comes again, and a new process goes on."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import pytest

from tests.unit.inprocess import now, virtually
from tests.unit.stream.headers import header, mark
from workbench.errors import ConfigError, StreamEndedError, StreamError
from workbench.stream import journal, queue
from workbench.stream.facts import Terms
from workbench.stream.journal import NAME, Journal, Record
from workbench.stream.queue import AsBooked, StreamQueue
from workbench.stream.rules import StreamRules

HOUR_S = 300.0


def queue_of(folder=None, *, run="run", version=0, terms=None, **rules):
    rules = StreamRules(**{"required_samples": 2, **rules})
    return StreamQueue(rules, folder=folder, version=version, clock=now, run=run, terms=terms)


async def filled(made, count):
    """The same queue, in which groups of these tickets wait."""
    tickets = await made.admit([], count, 0.0)
    for ticket in tickets:
        assert await made.put(header(ticket), blob_of(ticket))
    return tickets


def blob_of(ticket):
    return f"group {ticket.position}/{ticket.attempt}".encode()


def positions(taken):
    assert all(blob == blob_of(head.ticket) for head, blob, _, _ in taken.groups)
    return [head.ticket.position for head, *_ in taken.groups]


async def published(made, version):
    """The pool and its learner are on this version."""
    await made.begin_publish(version)
    await made.end_publish(mark(version))


async def begun(*calls):
    """These, as tasks that wait."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


@virtually
async def test_a_taker_is_woken_by_the_group_that_was_missing():
    made = queue_of()
    tickets = await made.admit([], 2, 0.0)
    (taker,) = await begun(made.take(2, HOUR_S, "main", 0))
    await made.put(header(tickets[0]), blob_of(tickets[0]))
    await asyncio.sleep(7.0)
    assert not taker.done()
    await made.put(header(tickets[1]), blob_of(tickets[1]))
    taken = await taker
    assert (now(), positions(taken)) == (7.0, [0, 1])
    assert [queue_s for *_, queue_s in taken.groups] == [7.0, 0.0]
    assert (await made.batches())[0]["waited_s"] == 7.0


@virtually
async def test_who_waits_in_vain_hears_so_when_the_time_is_up():
    made = queue_of()
    assert await made.take(2, 5.0, "main", 0) is None
    assert len(await made.admit([], 100, 5.0)) == 4
    held = [row["position"] for row in await made.groups()]
    assert held == [0, 1, 2, 3]
    assert now() == 5.0


@virtually
async def test_with_no_room_the_rollouter_stands_still_until_there_is_some():
    made = queue_of()
    held = await made.admit([], 100, 0.0)
    looks = []
    begin = made._ledger.begin
    made._ledger.begin = lambda *given: looks.append(now()) or begin(*given)
    (waits,) = await begun(made.admit(held, 100, HOUR_S))
    await asyncio.sleep(100.0)
    assert len(looks) == 1
    await made.leave(header(held[0]), "filtered", replay=False)
    assert [ticket.position for ticket in await waits] == [4]
    assert len(looks) == 2


@virtually
async def test_tickets_that_were_lost_on_their_way_are_given_again():
    made = queue_of()
    lost = await made.admit([], 3, 0.0)
    again = await made.admit(lost[:1], 100, 0.0)
    assert [(t.position, t.attempt) for t in again] == [(1, 2), (2, 2), (3, 1)]
    assert not await made.put(header(lost[1]), b"late")
    assert await made.put(header(again[0]), blob_of(again[0]))


@virtually
async def test_a_put_that_is_made_again_changes_nothing_also_once_its_group_was_committed():
    made = queue_of()
    (ticket,) = await filled(made, 1)
    assert await made.put(header(ticket), blob_of(ticket)), "its answer was lost"
    taken = await made.take(1, 0.0, "main", 0)
    assert await made.put(header(ticket), blob_of(ticket))
    await made.commit(taken.number)
    assert not await made.put(header(ticket), blob_of(ticket)), "nothing is kept any more"
    now_ = await made.snapshot()
    assert (now_.ended, now_.consumed, now_.in_queue, now_.drops) == (1, 1, 0, ())


@virtually
async def test_an_older_question_takes_nothing_from_a_newer_one():
    made = queue_of()
    held = await made.admit([], 4, 0.0)
    olds = await begun(made.admit(held, 9, HOUR_S), made.take(2, HOUR_S, "main", 0))
    news = await begun(made.admit(held, 9, HOUR_S), made.take(2, HOUR_S, "main", 0))
    for ticket in held[:2]:
        await made.put(header(ticket), blob_of(ticket))
    await made.leave(header(held[2]), "filtered", replay=False)
    assert positions(await news[1]) == [0, 1]
    assert [ticket.position for ticket in await news[0]] == [4]
    assert [await old for old in olds] == [[], None]


@virtually
async def test_a_batch_whose_answer_was_lost_is_given_again():
    made = queue_of(max_staleness=2)
    await filled(made, 6)
    first = await made.take(2, 0.0, "main", 0)
    lost = await made.take(2, 0.0, "main", first.number)
    assert await made.take(2, 0.0, "main", first.number) == lost
    other = await made.take(2, 0.0, "another", 0)
    assert sorted(positions(first) + positions(lost) + positions(other)) == list(range(6))
    assert (await made.snapshot()).uncommitted == 6


@virtually
async def test_a_batch_that_is_given_again_says_how_old_it_is_by_now():
    made = queue_of(max_staleness=2)
    await filled(made, 4)
    first = await made.take(2, 0.0, "main", 0)
    lost = await made.take(2, 0.0, "main", first.number)
    await published(made, 1)
    again = await made.take(2, 0.0, "main", first.number)
    assert (again.number, again.version, positions(again)) == (lost.number, 1, [2, 3])
    assert [staleness for _, _, staleness, _ in again.groups] == [1, 1]


@virtually
async def test_a_batch_that_nobody_waited_for_any_more_is_not_given_when_it_is_too_old(tmp_path):
    made = queue_of(tmp_path, max_staleness=0)
    await filled(made, 2)
    first = (await made.take(2, 0.0, "main", 0)).number
    await made.commit(first)
    await published(made, 1)
    (left_behind,) = await begun(made.take(2, HOUR_S, "main", first))
    await filled(made, 2)
    assert positions(await left_behind) == [2, 3]  # its asker had given up
    await published(made, 2)
    (waits,) = await begun(made.take(2, HOUR_S, "main", first))
    assert not waits.done()
    assert [ticket.attempt for ticket in await filled(made, 2)] == [2, 2]
    taken = await waits
    assert (taken.version, positions(taken)) == (2, [2, 3])
    assert [staleness for _, _, staleness, _ in taken.groups] == [0, 0]
    await made.close()


@virtually
async def test_who_lost_a_batch_to_another_hears_so_when_it_commits():
    made = queue_of()
    await filled(made, 2)
    lost = await made.take(2, 0.0, "critic", 0)
    await made.reclaim("critic")
    taken = await made.take(2, 0.0, "main", 0)
    with pytest.raises(StreamError, match=r"batch 1 was taken back .* handed out again"):
        await made.commit(lost.number)
    await made.commit(taken.number)


@virtually
async def test_who_begins_anew_gets_what_was_not_committed():
    made = queue_of()
    await filled(made, 4)
    first = await made.take(2, 0.0, "main", 0)
    await made.commit(first.number)
    lost = await made.take(2, 0.0, "main", first.number)
    again = await made.take(2, 0.0, "main", 0)
    assert positions(again) == positions(lost) == [2, 3]
    assert [row["number"] for row in await made.batches()] == [1, 3]


@virtually
async def test_a_consumer_that_died_while_it_waited_is_handed_nothing():
    made = queue_of()
    tickets = await made.admit([], 2, 0.0)
    (dead,) = await begun(made.take(2, HOUR_S, "dead", 0))
    await made.reclaim("dead")
    for ticket in tickets:
        await made.put(header(ticket), blob_of(ticket))
    assert await dead is None
    assert positions(await made.take(2, 0.0, "main", 0)) == [0, 1]


@virtually
async def test_all_that_wait_hear_of_the_end():
    made = queue_of()
    held = await made.admit([], 4, 0.0)
    waiting = await begun(made.admit(held, 9, HOUR_S), made.take(3, HOUR_S, "main", 0))
    await made.fail("the rollouter died")
    for waits in waiting:
        with pytest.raises(StreamError, match="the rollouter died"):
            await waits


@virtually
async def test_tickets_end_only_when_nothing_can_come_back():
    made = queue_of()
    await filled(made, 2)
    await made.source_ended(2)
    (rollouter,) = await begun(made.admit([], 9, HOUR_S))
    taken = await made.take(2, 0.0, "main", 0)
    with pytest.raises(StreamEndedError):
        await made.take(2, 0.0, "main", taken.number)
    await begun()
    assert not rollouter.done()
    await made.commit(taken.number)
    with pytest.raises(StreamEndedError, match="all tasks were used up"):
        await rollouter


# -- another process ----------------------------------------------------------------------------


@virtually
async def test_another_process_goes_on_and_every_task_is_consumed_once(tmp_path):
    made = queue_of(tmp_path, run="first")
    tickets = await filled(made, 3)
    taken = await made.take(2, 0.0, "main", 0)
    await made.commit(taken.number)
    await made.begin_publish(1)
    await made.end_publish(mark(1))
    flying = await made.admit([], 2, 0.0)
    await made.take(1, 0.0, "main", taken.number)
    await made.set_max_staleness(0)
    made.shut()  # what a death leaves: nothing is written at the end

    made = queue_of(tmp_path, run="second", version=1)
    told = await made.snapshot()
    assert (told.version, told.pool_version, told.max_staleness) == (1, 1, 1)
    again = await made.admit([], 2, 0.0)
    assert [(t.position, t.attempt) for t in again] == [(t.position, 2) for t in flying]
    for ticket in again:
        await made.put(header(ticket), blob_of(ticket))
    rest = await made.take(3, 0.0, "main", 0)
    assert positions(rest) == [tickets[2].position, *(ticket.position for ticket in again)]
    await made.commit(rest.number)
    assert [row["committed"] for row in await made.batches()] == [True, True]
    await made.close()


TERMS = Terms(agent="tool", n=8, epochs=1, shuffle=None)


@pytest.mark.parametrize(
    ("name", "other"), [("agent", "single_turn"), ("n", 4), ("epochs", None), ("shuffle", 7)]
)
@virtually
async def test_other_terms_than_a_stream_was_begun_with_are_refused_and_change_nothing(
    tmp_path, name, other
):
    made = queue_of(tmp_path, run="first", terms=TERMS)
    tickets = await made.admit([], 2, 0.0)
    await made.put(header(tickets[0]), blob_of(tickets[0]))
    await made.take(1, 0.0, "main", 0)
    made.shut()
    before = (tmp_path / NAME).read_bytes()

    began = repr(getattr(TERMS, name))
    told = rf"^{name}: is {other!r}, and .* was begun with {began} \(allowed: {began}, or another"
    for run in ("first", "second"):  # it holds for the run that is interrupted, too
        with pytest.raises(ConfigError, match=told):
            queue_of(tmp_path, run=run, terms=replace(TERMS, **{name: other}))
    assert (tmp_path / NAME).read_bytes() == before

    for run in ("second", "third"):  # also once the journal was written anew
        made = queue_of(tmp_path, run=run, terms=replace(TERMS))
        assert positions(await made.take(1, 0.0, "main", 0)) == [0]
        made.shut()
    queue_of(tmp_path, run="fourth").shut()  # who says none is not asked


def test_a_journal_whose_books_lack_something_is_of_another_version(tmp_path):
    queue_of(tmp_path, terms=TERMS).shut()
    journal_ = Journal(tmp_path)
    (record, *_) = journal_.records()
    books = pickle.loads(record.blob)
    del books.terms
    journal_.rewrite([Record(AsBooked(), pickle.dumps(books))], wait=True)
    journal_.close()
    with pytest.raises(StreamError, match=r"of another version of this package: .*'terms'"):
        queue_of(tmp_path)


@virtually
async def test_the_same_run_goes_on_as_if_nothing_had_been(tmp_path):
    made = queue_of(tmp_path)
    held = await made.admit([], 4, 0.0)
    await made.put(header(held[0]), blob_of(held[0]))
    await made.pause()
    await made.begin_publish(1)
    await made.set_max_staleness(2)
    before, rows = await made.snapshot(), await made.groups()
    made.shut()

    made = queue_of(tmp_path)
    assert (await made.snapshot(), await made.groups()) == (before, rows)
    assert await made.put(header(held[0]), blob_of(held[0]))
    await made.put(header(held[1]), blob_of(held[1]))
    assert positions(await made.take(2, 0.0, "main", 0)) == [0, 1]
    await made.close()


@virtually
async def test_a_learner_that_is_ahead_of_a_new_pool_is_waited_for(tmp_path):
    made = queue_of(tmp_path, run="first")
    for version in (1, 2):
        await made.begin_publish(version)
        await made.end_publish(mark(version))
    made.shut()
    made = queue_of(tmp_path, run="second", version=0)
    assert await made.admit([], 9, 0.0) == []
    waits_for = (await made.snapshot()).waits_for
    assert waits_for == "a publish: the pool is on version 0, the learner on version 2"
    await made.begin_publish(2)
    await made.end_publish(mark(2))
    assert {t.start_version for t in await made.admit([], 9, 0.0)} == {2}
    await made.close()


@virtually
async def test_the_journal_does_not_grow_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "SPARE_BYTES", 20_000)
    made, after = queue_of(tmp_path), 0
    for version in range(1, 120):
        for ticket in await made.admit([], 2, 0.0):
            assert await made.put(header(ticket), blob_of(ticket).ljust(2_000))
        taken = await made.take(2, 0.0, "main", after)
        await made.commit(after := taken.number)
        await made.begin_publish(version)
        await made.end_publish(mark(version))
        if thread := made._journal._rewriting:
            thread.thread.join()
    assert (tmp_path / NAME).stat().st_size < 100_000 < 119 * 4_000
    before = await made.snapshot()
    made.shut()
    made = queue_of(tmp_path)
    assert await made.snapshot() == before
    await made.close()


@virtually
async def test_what_cannot_be_written_down_fails_the_stream(tmp_path, monkeypatch):
    made = queue_of(tmp_path)
    held = await made.admit([], 2, 0.0)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "_write_all", full)
    for call in (made.put(header(held[0]), b"..."), made.admit(held, 2, 0.0), made.pause()):
        with pytest.raises(StreamError, match=r"cannot be written: .*No space left"):
            await call
    assert (await made.snapshot()).state == "failed"
    await made.close()


def test_a_folder_that_is_refused_is_let_go_of(tmp_path):
    (tmp_path / NAME).write_bytes(b"something else, which is long enough")
    for _ in range(2):
        with pytest.raises(StreamError, match="not the journal"):
            queue_of(tmp_path)
    assert queue.Taken._fields == ("number", "version", "groups")
