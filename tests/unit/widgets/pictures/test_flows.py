"""What sessions did lately: nothing twice, nothing for ever, nothing without bound."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.widgets.pictures.scenes import NOW_S, make_move, make_replica, make_sample
from widgets.pictures.flows import MOVES, PAIRS, Flows
from workbench.metrics.samples import Activity, SessionTurns

REPLICAS = (make_replica("replica-0"),)


def sample(time_s, *hot, others=(), moves=(), lost=0):
    turns = tuple(SessionTurns(*item) for item in hot)
    activity = Activity(lost=lost, hot=turns, others=tuple(others), moves=tuple(moves))
    return make_sample(REPLICAS, time_s=NOW_S + time_s, activity=activity)


def test_turns_add_up_over_the_span_and_then_leave():
    flows = Flows(span_s=300)
    flows.add(sample(0, ("a", "r0", 5), others=[("r0", 2)], lost=3))
    flows.add(sample(100, ("a", "r0", 1), ("a", "r1", 4), others=[("r0", 1)]))
    both = flows.activity()
    assert both.hot == (SessionTurns("a", "r0", 6), SessionTurns("a", "r1", 4))
    assert (both.others, both.lost) == ((("r0", 3),), 3)
    flows.add(sample(305, ("b", "r0", 1)))
    assert flows.activity().hot == (
        SessionTurns("a", "r1", 4), SessionTurns("a", "r0", 1), SessionTurns("b", "r0", 1),
    )  # fmt: skip
    flows.add(sample(5000))
    assert (flows.activity().hot, flows.activity().others) == ((), ())


def test_a_sample_that_is_seen_twice_counts_once():
    flows = Flows()
    for _ in range(3):
        flows.add(sample(1, ("a", "r0", 5)))
    flows.add(sample(0.5, ("a", "r0", 7)))
    assert flows.activity().hot == (SessionTurns("a", "r0", 5),)


def test_moves_are_kept_once_in_order_however_old():
    flows = Flows(span_s=10)
    flows.add(sample(0, moves=[make_move(1, "a", "r0"), make_move(2, "b", "r0")]))
    flows.add(sample(1000, moves=[make_move(2, "b", "r0"), make_move(3, "c", "r1")]))
    assert [move.number for move in flows.activity().moves] == [1, 2, 3]
    assert flows.activity().cursor == 3


def test_sessions_beyond_the_limit_count_with_their_replica():
    flows = Flows()
    flows.add(sample(0, *((f"s{n}", "r0", 1 + (n == 700)) for n in range(1000))))
    activity = flows.activity()
    assert len(activity.hot) == PAIRS
    assert activity.hot[0] == SessionTurns("s700", "r0", 2)
    assert activity.others == (("r0", 1001 - (PAIRS + 1)),)


turns = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["r0", "r1"]), st.integers(1, 9))


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0.1, 40), st.lists(turns, max_size=8)), max_size=40))
def test_whatever_comes_turns_of_the_last_part_of_the_span_are_all_there(steps):
    flows, now_s, told = Flows(span_s=100), 0.0, []
    for number, (step_s, hot) in enumerate(steps):
        now_s += step_s
        moves = [make_move(number + 1, "a", "r0")]
        flows.add(sample(now_s, *hot, moves=moves))
        told.append((now_s, sum(item[2] for item in hot)))
    activity = flows.activity()
    counted = sum(item.turns for item in activity.hot) + sum(n for _, n in activity.others)
    sure = sum(n for time_s, n in told if time_s > now_s - 96)
    at_most = sum(n for time_s, n in told if time_s > now_s - 100.001)
    assert sure <= counted <= at_most
    assert len(activity.moves) <= MOVES
