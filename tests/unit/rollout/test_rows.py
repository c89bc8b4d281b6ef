"""Rows that a loop returns find the segments that they are, or leave the record as it was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import RolloutError
from workbench.rollout.outputs import AgentLoopMetrics, AgentLoopOutput, adopt
from workbench.rollout.trajectory import RolloutStatus, TrajectoryBuilder
from workbench.types import FinishReason, TokenOutput, VersionSpan

PROMPT = [1, 2, 3]


def recorded(*turns):
    """A record of turns: prompt, sampled ids, and one log-probability for all of them."""
    builder = TrajectoryBuilder()
    for prompt, ids, *log_prob in turns:
        spans = (VersionSpan(0, 0, len(ids)),) if ids else ()
        log_probs = [*log_prob, -0.5][:1] * len(ids)
        builder.add_turn(
            prompt, TokenOutput(list(ids), log_probs, FinishReason.STOP, spans, "replica-0")
        )
    return builder


def row(prompt, ids, mask=None, log_prob=None, **known):
    return AgentLoopOutput(
        prompt,
        ids,
        [1] * len(ids) if mask is None else mask,
        None if log_prob is None else [log_prob] * len(ids),
        **known,
    )


def built(builder):
    trajectory = builder.build(
        rollout_id="task-0/0", group="task-0", index=0, agent="test", task={},
        status=RolloutStatus.DONE, reward=builder.reward,
    )  # fmt: skip
    trajectory.check()
    return trajectory


def adopted(builder, *rows):
    adopt(builder, list(rows))
    return built(builder)


def test_samples_of_one_prompt_that_are_equal_by_chance_are_two_rows():
    record = recorded((PROMPT, [7, 8]), (PROMPT, [7, 8]))
    trajectory = adopted(record, row(PROMPT, [7, 8]), row(PROMPT, [7, 8]))
    assert [s.sampled_ids for s in trajectory.segments] == [[7, 8], [7, 8]]
    assert trajectory.notes == ()


@pytest.mark.parametrize("order", [(-0.5, -0.25), (-0.25, -0.5)])
def test_equal_samples_are_told_apart_by_their_log_probabilities(order):
    record = recorded((PROMPT, [7, 8], -0.5), (PROMPT, [7, 8], -0.25))
    trajectory = adopted(
        record,
        *(row(PROMPT, [7, 8], log_prob=p, extra_fields={"mine": p}) for p in order),
    )
    assert [s.log_probs[0] for s in trajectory.segments] == [-0.5, -0.25]
    assert [told["mine"] for told in trajectory.extra["rows"]] == [-0.5, -0.25]


def test_a_cut_row_is_not_the_fork_that_shares_what_is_left_of_it():
    fork = [*PROMPT, 4, 5, 6, 9]
    record = recorded((PROMPT, [4, 5, 6, 7]), (fork, [8]))
    trajectory = adopted(record, row(PROMPT, [4]), row(fork, [8]))
    assert [s.ids for s in trajectory.segments] == [[*PROMPT, 4], [*fork, 8]]
    assert (trajectory.segments[1].parent, trajectory.segments[1].shared_tokens) == (0, 4)


def test_a_sample_without_a_token_and_another_of_the_same_prompt_are_two_rows():
    record = recorded((PROMPT, []), (PROMPT, [7, 8]))
    trajectory = adopted(record, row(PROMPT, [7, 8]), row(PROMPT, []))
    assert [s.sampled_ids for s in trajectory.segments] == [[], [7, 8]]


def test_a_row_as_long_as_a_segment_is_that_one():
    record = recorded((PROMPT, [7, 8, 9]), (PROMPT, [7, 8]), (PROMPT, [7]))
    trajectory = adopted(record, row(PROMPT, [7, 8]))
    assert trajectory.notes == ("the loop left out 2 of 3 segments",), "nothing was cut"


def test_a_row_as_long_as_a_segment_is_that_one_whatever_was_returned_before():
    record = recorded((PROMPT, [7, 8]), (PROMPT, [7, 8, 9]))
    trajectory = adopted(record, row(PROMPT, [7]), row(PROMPT, [7, 8]))
    assert trajectory.notes == ("the loop left out the last 2 tokens of segment 1",)


def test_a_row_gives_way_to_one_that_fits_nowhere_else():
    record = recorded((PROMPT, [7, 8], -0.5), (PROMPT, [7, 8, 9], -0.25))
    trajectory = adopted(record, row(PROMPT, [7, 8]), row(PROMPT, [7], log_prob=-0.5))
    assert [s.sampled_ids for s in trajectory.segments] == [[7], [7, 8]]


@pytest.mark.parametrize("second", [[7, 8], [7], [7, 8, 5]], ids=["whole", "cut", "told more"])
def test_one_row_that_is_returned_twice_is_refused(second):
    again = row(PROMPT, second, [1, 1, 0][: len(second)])
    with pytest.raises(RolloutError, match=r"row [01]: two of the returned rows are the same one"):
        adopt(recorded((PROMPT, [7, 8]), ([9], [7])), [row(PROMPT, [7, 8]), again])


def test_a_row_is_held_against_the_segment_that_begins_with_its_prompt():
    """Not against one that was only told the same tokens."""
    record = recorded(([*PROMPT, 4, 5], []), (PROMPT, [4, 5]))
    with pytest.raises(RolloutError, match="row 0: response_mask is 0 at token 1"):
        adopt(record, row(PROMPT, [4, 5], [1, 0]))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_rows_that_were_sampled_are_taken_over_whatever_their_order_and_likeness(data):
    ids = st.lists(st.integers(7, 8), max_size=3)
    turn = st.tuples(st.sampled_from([[1], [1, 7], [1, 7, 8]]), ids, st.sampled_from([-0.5, -0.25]))
    record = recorded(*data.draw(st.lists(turn, min_size=1, max_size=6)))
    numbers = data.draw(st.permutations(range(len(record.growing))))
    rows = []
    for number in numbers[: data.draw(st.integers(1, len(numbers)))]:
        segment = record.growing[number].freeze()
        size = data.draw(st.integers(0, len(segment.response_ids)))
        log_probs = segment.log_probs[:size] if data.draw(st.booleans()) else None
        rows.append(
            AgentLoopOutput(
                segment.prompt_ids,
                segment.response_ids[:size],
                segment.response_mask[:size],
                log_probs,
            )
        )
    trajectory = adopted(record, *rows)
    assert sorted((s.prompt_ids, s.response_ids, s.response_mask) for s in trajectory.segments) == (
        sorted((r.prompt_ids, r.response_ids, r.response_mask) for r in rows)
    )


@pytest.mark.parametrize(
    "second",
    [
        row([9], [6]),
        row([9], [5], extra_fields=5),
        row([9], [5], metrics=5),
        row([9], [5], reward_score=float("inf")),
        row([9], [5], reward_score="high"),
    ],
)
def test_a_refused_row_leaves_the_record_as_it_was_sampled(second):
    record = recorded((PROMPT, [4, 5]), ([9], [5]), ([8], [5]))
    before = built(record)
    with pytest.raises((RolloutError, TypeError, ValueError)):
        adopt(record, [row(PROMPT, [4], reward_score=1.0, extra_fields={"mine": 1}), second])
    assert built(record) == before


def test_no_rows_at_all_is_an_error_that_says_so():
    with pytest.raises(RolloutError, match="empty list of rows"):
        adopt(recorded((PROMPT, [7])), [])


def test_rows_may_give_one_reward_and_no_two():
    def scored(*scores):
        record = recorded(*(([9 + place], [7]) for place in range(len(scores))))
        rows = [row([9 + place], [7], reward_score=s) for place, s in enumerate(scores)]
        return adopted(record, *rows).reward

    assert scored(None, np.float32(0.5), 0.5) == 0.5
    assert type(scored(np.float32(0.5))) is float
    assert scored(None, None) is None
    with pytest.raises(RolloutError, match=r"row 2: reward_score is 1.0, that of row 1 is 0.0"):
        scored(None, 0.0, 1.0)


def test_what_several_rows_say_besides_is_kept_in_the_order_of_the_segments():
    def told(*numbers):
        record = recorded(([9], [7]), ([8], [7]), ([7], [7]))
        rows = [
            row([9 - n], [7], metrics=AgentLoopMetrics(n), extra_fields={"k": n}) for n in numbers
        ]
        return adopted(record, *rows).extra

    rows = told(2, 0)["rows"]
    assert [(told["k"], told["metrics"]["generate_sequences"]) for told in rows] == [(0, 0), (2, 2)]
    assert set(told(2)) == {"metrics", "k"}, "of one row it is the trajectory's"


@pytest.mark.parametrize("container", [np.array, lambda values: [*map(np.float64, values)]])
def test_arrays_are_taken_and_become_plain_numbers(container):
    record = recorded((PROMPT, [4, 5]))
    returned = AgentLoopOutput(
        container(PROMPT), container([4, 5, 6]), container([1, 1, 0]), container([-0.5, -0.5, 0])
    )
    (segment,) = adopted(record, returned).segments
    assert segment.response_ids == [4, 5, 6]
    assert {type(token) for token in segment.ids + segment.response_mask} == {int}
    assert {type(log_prob) for log_prob in segment.log_probs} == {float}


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        (row(PROMPT, [4, 5], log_prob=float("nan")), "response_logprobs is nan at token 0"),
        (row(PROMPT, [4, 5.5]), "response_ids is not made of whole numbers"),
        (row(PROMPT, ["4", 5]), "response_ids is not made of whole numbers"),
        (row(PROMPT, [4, None]), "response_ids is not made of numbers"),
        (AgentLoopOutput(PROMPT, [4], None), "response_mask is not made of numbers"),
        (AgentLoopOutput(PROMPT, [4], [1], np.array([])), "response_logprobs has 0 entries"),
    ],
)
def test_what_is_not_a_number_is_refused(returned, complaint):
    with pytest.raises(RolloutError, match=f"^row 0: {complaint}"):
        adopt(recorded((PROMPT, [4, 5])), returned)
