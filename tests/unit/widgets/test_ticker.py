"""One thread per feed while somebody looks: news, states, errors, the end."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from tests.unit.widgets.feeds import WAIT_S, SteppedFeed, ended, tickers
from widgets.ticker import LONGEST_REST_S, QUIET_PERIODS, SHARE, Budget, Ticker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Watch:
    """Counts its calls, and says on which thread they were made."""

    def __init__(self, raises: Exception | None = None) -> None:
        self.calls = 0
        self.threads: set[threading.Thread] = set()
        self.raises = raises

    def __call__(self) -> None:
        self.calls += 1
        self.threads.add(threading.current_thread())
        if self.raises:
            raise self.raises


@pytest.fixture
def feed() -> Iterator[SteppedFeed]:
    yield SteppedFeed()
    assert ended(), "a ticker goes on"


def subscribed(feed: SteppedFeed, watch: Watch) -> Callable[[], None]:
    """A subscription that was called once, at once."""
    unsubscribe = Ticker.of(feed).subscribe(watch)
    feed.reached()
    feed.step()
    assert watch.calls == 1
    return unsubscribe


def finish(feed: SteppedFeed, *unsubscribe: Callable[[], None]) -> None:
    for one in unsubscribe:
        one()
    feed.last_step()
    assert ended()


def test_a_subscriber_is_called_at_once_and_then_for_news_only(feed):
    watch = Watch()
    unsubscribe = subscribed(feed, watch)
    feed.step()
    feed.step()
    assert watch.calls == 1
    feed.step(news=True)
    assert watch.calls == 2
    finish(feed, unsubscribe)


def test_a_feed_has_one_ticker_and_its_thread_is_a_daemon(feed):
    one, other = Watch(), Watch()
    first = subscribed(feed, one)
    second = Ticker.of(feed).subscribe(other)
    feed.step()
    assert (one.calls, other.calls) == (1, 1), "only the new one is told at once"
    (thread,) = tickers()
    assert one.threads == other.threads == {thread}
    assert thread.daemon
    finish(feed, first, second)


def test_feeds_have_tickers_of_their_own():
    assert Ticker.of(SteppedFeed()) is not Ticker.of(SteppedFeed())


def test_errors_and_their_end_are_news(feed):
    watch = Watch()
    unsubscribe = subscribed(feed, watch)
    feed.error = "the controller does not answer"
    feed.step()
    assert watch.calls == 2
    feed.step()
    assert watch.calls == 2
    feed.error = ""
    feed.step()
    assert watch.calls == 3
    finish(feed, unsubscribe)


def test_a_closed_feed_is_told_a_last_time_and_ends_the_thread(feed):
    watch = Watch()
    subscribed(feed, watch)
    feed.closed = True
    feed.last_step()
    assert ended()
    assert watch.calls == 2


def test_who_comes_after_the_end_is_told_once(feed):
    feed.closed = True
    watch = Watch()
    Ticker.of(feed).subscribe(watch)
    feed.reached()
    feed.last_step()
    assert ended()
    assert watch.calls == 1


def test_who_comes_during_the_last_call_is_told_as_well(feed):
    late = Watch()

    def call() -> None:
        if feed.closed and not late.calls:
            Ticker.of(feed).subscribe(late)

    ticker = Ticker.of(feed)
    ticker.subscribe(call)
    feed.reached()
    feed.step()
    feed.closed = True
    feed.step()
    feed.last_step()
    assert ended()
    assert late.calls == 1


def test_a_thread_that_ended_begins_again_for_the_next_one(feed):
    one, other = Watch(), Watch()
    ticker = Ticker.of(feed)
    finish(feed, subscribed(feed, one))
    assert Ticker.of(feed) is ticker
    finish(feed, subscribed(feed, other))
    assert one.calls == other.calls == 1
    assert one.threads != other.threads


def test_a_subscriber_that_raises_is_logged_once_and_called_again(feed, caplog):
    broken, sound = Watch(ValueError("no such column")), Watch()
    with caplog.at_level(logging.ERROR, "widgets.ticker"):
        first = subscribed(feed, broken)
        second = Ticker.of(feed).subscribe(sound)
        for _ in range(3):
            feed.step(news=True)
    assert (broken.calls, sound.calls) == (4, 3)
    (record,) = caplog.records
    assert "no such column" in record.exc_text
    finish(feed, first, second)


def test_who_left_in_the_same_round_is_not_called(feed):
    watch = Watch()
    ends: list[Callable[[], None]] = []

    def leave() -> None:
        for end in ends:
            end()

    first = Ticker.of(feed).subscribe(leave)
    feed.reached()
    ends.append(Ticker.of(feed).subscribe(watch))
    feed.step(news=True)
    assert watch.calls == 0
    finish(feed, first)


def test_a_long_silence_is_news_once_until_it_ends():
    period_s = 1e-6  # by the ticker's clock, which the test moves; nobody waits for it
    feed, now_s, watch = SteppedFeed(period_s), [0.0], Watch()
    unsubscribe = Ticker(feed, clock=lambda: now_s[0]).subscribe(watch)
    feed.reached()
    for periods, news, calls in (
        (0, False, 1),
        (QUIET_PERIODS - 1, False, 1),
        (QUIET_PERIODS, False, 2),
        (QUIET_PERIODS * 9, False, 2),
        (QUIET_PERIODS * 10, True, 3),
        (QUIET_PERIODS * 10 + 1, False, 3),
    ):
        now_s[0] = periods * period_s
        feed.step(news=news)
        assert watch.calls == calls, periods
    finish(feed, unsubscribe)


def test_nobody_waits_for_a_period_to_be_told_or_to_leave():
    feed, ticks = SteppedFeed(period_s=1e6), [threading.Event(), threading.Event()]
    ticker = Ticker.of(feed)
    ends = []
    for tick in ticks:
        ends.append(ticker.subscribe(tick.set))
        feed.turns.put(False)
        assert tick.wait(WAIT_S)
    for end in ends:
        end()
    assert ended()


def test_a_feed_that_nobody_looks_at_any_more_can_go(feed):
    gone = SteppedFeed()
    finish(gone, subscribed(gone, Watch()))
    reference = weakref.ref(gone)
    del gone
    gc.collect()
    assert reference() is None


# -- what it may use -------------------------------------------------------------------------


def rounds(use_s: float, every_s: float) -> tuple[float, float]:
    """Rounds a second and the share of a core, over a minute in which each has so much to do."""
    budget, now_s, count = Budget(0.0, 7.0), 0.0, 0
    while now_s < 60.0:
        count += 1
        now_s += use_s
        now_s += max(every_s, budget.rest_s(now_s, 7.0 + count * use_s))
    return count / now_s, count * use_s / now_s


def test_who_uses_little_never_rests():
    assert rounds(0.02, 0.5)[0] == pytest.approx(1 / 0.52, rel=0.02)


@pytest.mark.parametrize("use_s", [0.03, 0.08])
def test_who_has_much_to_do_does_it_less_often(use_s):
    assert rounds(use_s, 0.25)[1] == pytest.approx(SHARE, rel=0.05)


def test_one_long_round_is_made_up_for_soon():
    budget = Budget(0.0, 0.0)
    assert budget.rest_s(3.0, 3.0) == LONGEST_REST_S
    assert budget.rest_s(3.0 + LONGEST_REST_S, 3.0) == pytest.approx(0.0)
