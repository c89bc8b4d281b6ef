"""A trajectory holds exactly what was sampled; check() notices when one does not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.rollout.trajectory import (
    RolloutStatus,
    ToolCall,
    TrajectoryBuilder,
    common_prefix,
)
from workbench.types import FinishReason, GenerationTiming, TokenOutput, VersionSpan


def output(*ids, finish=FinishReason.STOP, version=0, spans=None, **known):
    covering = (VersionSpan(version, 0, len(ids)),) if ids else ()
    return TokenOutput(
        list(ids),
        [-0.1 * i for i in ids],
        finish,
        covering if spans is None else spans,
        known.pop("replica_id", "replica-0"),
        **known,
    )


def build(builder, **known):
    fields = {"status": RolloutStatus.DONE, "reward": None, **known}
    return builder.build(
        rollout_id="task-0/0", group="task-0", index=0, agent="test", task={}, **fields
    )


def turns(*pairs, forks=()):
    builder = TrajectoryBuilder()
    for number, (prompt, said) in enumerate(pairs):
        builder.add_turn(prompt, said, fork=dict(forks).get(number, ""))
    return builder


def checked(builder, **known):
    trajectory = build(builder, **known)
    trajectory.check()
    return trajectory


def test_a_turn_is_a_segment_with_its_ids_under_mask_one():
    trajectory = checked(turns(([1, 2], output(7, 8))))
    (segment,) = trajectory.segments
    assert segment.prompt_ids == [1, 2]
    assert (segment.response_ids, segment.response_mask) == ([7, 8], [1, 1])
    assert segment.log_probs == pytest.approx([-0.7, -0.8])


def test_a_prompt_that_continues_grows_the_row_and_what_lies_between_is_masked():
    trajectory = checked(turns(([1], output(7, 8)), ([1, 7, 8, 4, 5], output(9))))
    (segment,) = trajectory.segments
    assert segment.response_ids == [7, 8, 4, 5, 9]
    assert segment.response_mask == [1, 1, 0, 0, 1]
    assert segment.log_probs[2:4] == [0.0, 0.0]
    assert segment.sampled_ids == [7, 8, 9]
    assert [(t.start, t.end) for t in trajectory.turns] == [(0, 2), (4, 5)]


def test_a_prompt_that_differs_forks_and_says_where():
    trajectory = checked(turns(([1, 2], output(7, 8)), ([1, 2, 7, 9, 4], output(5))))
    first, second = trajectory.segments
    assert (first.response_ids, second.prompt_ids) == ([7, 8], [1, 2, 7, 9, 4])
    assert (first.fork_reason, second.fork_reason) == (
        "",
        "the prompt differs from the last turn at token 3: 8 became 9",
    )


def test_a_prompt_that_was_cut_forks_and_says_where():
    trajectory = checked(turns(([1, 2], output(7, 8)), ([1, 2, 7], output(5))))
    assert "ends at token 3" in trajectory.segments[1].fork_reason


def test_a_fork_that_the_loop_knows_of_keeps_its_reason():
    trajectory = checked(
        turns(([1], output(7)), ([1, 7, 2], output(5)), forks={1: "new topic"}.items())
    )
    assert trajectory.segments[1].fork_reason == "new topic"


def test_conversations_in_turns_grow_rows_of_their_own():
    """Two agents that share a client: each goes on where it stopped, and no row is begun twice."""
    trajectory = checked(
        turns(
            ([1], output(7)),
            ([9], output(5)),
            ([1, 7, 2], output(8)),
            ([9, 5, 3], output(6)),
            ([1, 7], output(4)),
        )
    )
    assert [s.response_ids for s in trajectory.segments] == [[7, 2, 8], [5, 3, 6], [4]]
    assert [t.segment for t in trajectory.turns] == [0, 1, 0, 1, 2]


def test_a_branch_names_the_row_that_it_leaves_and_trains_no_token_twice():
    """Two answers to one first turn: it is sampled in the first row, and told in the second."""
    trajectory = checked(
        turns(([1, 2], output(7, 8)), ([1, 2, 7, 8, 3], output(5)), ([1, 2, 7, 8, 4], output(6)))
    )
    trunk, branch = trajectory.segments
    assert (trunk.parent, trunk.shared_tokens) == (None, 0)
    assert (branch.parent, branch.shared_tokens) == (0, 4)
    assert branch.prompt_ids == [1, 2, 7, 8, 4]
    assert (trunk.sampled_ids, branch.sampled_ids) == ([7, 8, 5], [6])


def test_a_row_that_shares_nothing_has_no_parent():
    _, other = checked(turns(([1], output(7)), ([9], output(5)))).segments
    assert (other.parent, other.shared_tokens) == (None, 0)


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_a_common_prefix_is_as_long_as_counting_says(one, other):
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    assert common_prefix(one, other) == len(list(pairs))


def test_an_empty_generation_is_a_valid_turn():
    trajectory = checked(turns(([1], output())))
    assert (trajectory.num_turns, trajectory.sampled_tokens) == (1, 0)
    assert trajectory.segments[0].response_ids == []
    assert trajectory.versions is None


@pytest.mark.parametrize(
    ("before", "prompt"), [((), [1, 2]), ((([1], output(2)),), [1, 2])], ids=["first", "later"]
)
def test_a_prompt_that_was_answered_with_nothing_is_sampled_again_as_a_row_of_its_own(
    before, prompt
):
    trajectory = checked(turns(*before, (prompt, output()), (prompt, output(7))))
    first, second = trajectory.segments
    assert first.ids == prompt
    assert (second.prompt_ids, second.sampled_ids) == (prompt, [7])
    assert (second.parent, second.shared_tokens) == (0, 2)
    assert "answered with no token" in second.fork_reason


@pytest.mark.parametrize("finish", [FinishReason.ABORT, FinishReason.ERROR])
def test_a_generation_that_was_stopped_before_its_first_token_is_gone_on_with(finish):
    trajectory = checked(turns(([1], output(finish=finish)), ([1], output(7))))
    assert [segment.sampled_ids for segment in trajectory.segments] == [[7]]
    assert trajectory.num_turns == 2


def test_what_goes_on_from_a_prompt_that_was_answered_with_nothing_grows_its_row():
    trajectory = checked(turns(([1], output()), ([1, 5], output(7))))
    assert [segment.response_ids for segment in trajectory.segments] == [[5, 7]]


def test_a_rollout_that_never_sampled_is_valid():
    trajectory = checked(TrajectoryBuilder(), status=RolloutStatus.CANCELLED)
    assert (trajectory.segments, trajectory.finish_reason) == ((), None)


def test_observed_tokens_are_part_of_the_row_and_not_of_the_policy():
    builder = turns(([1], output(7)))
    builder.observe([3, 4])
    builder.add_turn([1, 7, 3, 4], output(8))
    (segment,) = checked(builder).segments
    assert (segment.response_ids, segment.response_mask) == ([7, 3, 4, 8], [1, 0, 0, 1])


def test_versions_are_those_of_all_segments():
    spans = (VersionSpan(3, 0, 1), VersionSpan(4, 1, 2))
    trajectory = checked(turns(([1], output(7, 8, spans=spans)), ([2], output(5, version=0))))
    assert trajectory.versions == (0, 4)


def test_spans_lie_over_the_sampled_tokens_of_the_row():
    trajectory = checked(
        turns(([1], output(7, version=1)), ([1, 7, 2, 2], output(8, 9, version=2)))
    )
    assert trajectory.segments[0].version_spans == (VersionSpan(1, 0, 1), VersionSpan(2, 3, 5))


def test_a_turn_remembers_how_it_went():
    said = output(
        7, finish=FinishReason.LENGTH, replica_id="replica-1", attempts=2, num_cached_tokens=1,
        timing=GenerationTiming(0.1, 0.2, 0.3),
    )  # fmt: skip
    trajectory = checked(turns(([1, 2, 3], said)))
    (turn,) = trajectory.turns
    assert (turn.finish_reason, turn.replica_id, turn.attempts) == (
        FinishReason.LENGTH,
        "replica-1",
        2,
    )
    assert (turn.prompt_tokens, turn.num_cached_tokens) == (3, 1)
    assert (turn.queue_s, turn.first_token_s, turn.total_s) == (0.1, 0.2, 0.3)
    assert trajectory.finish_reason is FinishReason.LENGTH


def test_tool_calls_are_kept_in_order():
    builder = turns(([1], output(7)))
    for name in ("a", "b"):
        builder.add_tool_call(ToolCall(0, name, {}, "", well_formed=True))
    assert [call.name for call in checked(builder).tool_calls] == ["a", "b"]


def forest():
    """Four rows: 1 and 3 fork from 0, 2 shares nothing; a tool call in each."""
    builder = TrajectoryBuilder()
    for number, (prompt, said) in enumerate(
        [([1, 2], (3, 4)), ([1, 2, 3, 5], (6,)), ([9, 9], (7,)), ([9, 9, 7, 1], (8,))]
    ):
        fork = "told" if number == 3 else ""
        builder.add_turn(prompt, output(*said), fork=fork)
        builder.add_tool_call(ToolCall(number, f"call {number}", {}, "", well_formed=True))
    return builder


def test_rows_that_are_kept_keep_their_parents_under_new_numbers():
    builder = forest()
    assert builder.growing[3].parent == 2
    builder.keep([3, 1, 2])
    one, root, child = checked(builder).segments
    assert [s.prompt_ids for s in (one, root, child)] == [[1, 2, 3, 5], [9, 9], [9, 9, 7, 1]]
    assert (one.parent, one.shared_tokens) == (None, 0), "its parent is gone"
    assert (child.parent, child.shared_tokens) == (1, 3)
    assert one.fork_reason == "", "it is the first now"
    assert (root.fork_reason[:17], child.fork_reason) == ("the prompt differ", "told")


def test_tool_calls_stay_with_their_turns_and_go_with_them():
    builder = forest()
    builder.keep([1, 3])
    trajectory = checked(builder)
    assert [(call.turn, call.name) for call in trajectory.tool_calls] == [
        (0, "call 1"),
        (1, "call 3"),
    ]


@pytest.mark.parametrize(("size", "shared"), [(3, [4, 2]), (1, [3, 2]), (0, [2, 2])])
def test_what_is_cut_from_a_row_is_no_longer_shared(size, shared):
    builder = turns(([1, 2], output(3, 4, 5)), ([1, 2, 3, 4, 9], output(6)), ([1, 2, 8], output(7)))
    builder.resize(0, [3, 4, 5][:size])
    _, *children = checked(builder).segments
    assert [(child.parent, child.shared_tokens) for child in children] == [
        (0, tokens) for tokens in shared
    ]


def test_a_row_of_which_nothing_is_left_is_nobodys_parent():
    builder = turns(([], output(3, 4)), ([3, 5], output(6)))
    builder.resize(0, [])
    assert (builder.growing[1].parent, builder.growing[1].shared_tokens) == (None, 0)
    checked(builder)


def test_what_is_recorded_later_does_not_reach_what_was_built():
    builder = turns(([1], output(7)))
    before = build(builder)
    builder.add_turn([1, 7, 2], output(8))
    before.check()
    assert before.segments[0].response_ids == [7]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["continue", "exactly", "cut", "other", "told", "back"]),
            st.lists(st.integers(0, 5), max_size=4),
            st.lists(st.integers(0, 5), max_size=4),
        ),
        max_size=10,
    )
)
def test_any_conversation_keeps_every_sampled_token_once(story):
    builder, ends, sampled = TrajectoryBuilder(), [[9]], []
    for kind, between, said in story:
        before = list(ends[-1])
        prompt = {
            "back": ends[len(ends) // 2] + between,
            "continue": before + between,
            "exactly": before,
            "cut": before[: len(before) // 2],
            "other": [8, *between],
            "told": before,
        }[kind]
        builder.add_turn(prompt, output(*said), fork="told" if kind == "told" else "")
        sampled.append(said)
        ends.append(prompt + said)
    trajectory = checked(builder)
    kept = [len(segment.sampled_ids) for segment in trajectory.segments]
    assert sum(kept) == sum(map(len, sampled))
    for turn, said in zip(trajectory.turns, sampled, strict=True):
        segment = trajectory.segments[turn.segment]
        assert segment.response_ids[turn.start : turn.end] == said
        assert len(segment.prompt_ids) + turn.start == turn.prompt_tokens


def damaged(**changes):
    trajectory = build(turns(([1], output(7, 8)), ([1, 7, 8, 3], output(9))))
    (segment,) = trajectory.segments
    return replace(trajectory, segments=(replace(segment, **changes),))


@pytest.mark.parametrize(
    "changes",
    [
        {"response_mask": [1, 1, 0]},
        {"log_probs": [0.0]},
        {"response_mask": [1, 1, 1, 1]},
        {"response_mask": [1, 0, 0, 1]},
        {"version_spans": (VersionSpan(0, 0, 2),)},
        {"version_spans": (VersionSpan(0, 0, 4),)},
        {"fork_reason": "the first continues nothing"},
    ],
)
def test_check_notices_a_row_that_is_not_aligned(changes):
    with pytest.raises(AssertionError):
        damaged(**changes).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"status": RolloutStatus.FAILED},
        {"error": "but done"},
        {"status": RolloutStatus.FAILED, "error": "E", "reward": 0.0},
        {"status": RolloutStatus.CANCELLED, "reward": 1.0},
        {"turns": ()},
        {"reward": float("nan")},
        {"reward": float("inf")},
    ],
)
def test_check_notices_a_rollout_that_contradicts_itself(changes):
    trajectory = replace(build(turns(([1], output(7)))), **changes)
    with pytest.raises(AssertionError):
        trajectory.check()


@pytest.mark.parametrize("parent", [-1, 1, 2])
def test_check_notices_a_parent_that_does_not_come_before(parent):
    trajectory = build(turns(([1, 2], output(7)), ([1, 2, 5], output(9))))
    first, fork = trajectory.segments
    assert fork.parent == 0
    segments = (first, replace(fork, parent=parent))
    with pytest.raises(AssertionError):
        replace(trajectory, segments=segments).check()
