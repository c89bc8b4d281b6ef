"""Batches keep every token where a learner looks for it, and every rollout has a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.rollout.batch import RolloutBatch, make_batch
from workbench.rollout.trajectory import RolloutStatus, Segment, TrajectoryBuilder
from workbench.types import FinishReason, TokenOutput, VersionSpan

PAD = 99


def trajectory(*turns, number=0, reward=None, status=RolloutStatus.DONE, **known):
    """One with a turn per ``(prompt, said)``."""
    builder = TrajectoryBuilder()
    for version, (prompt, said) in enumerate(turns):
        spans = (VersionSpan(version, 0, len(said)),) if said else ()
        builder.add_turn(
            prompt,
            TokenOutput(
                list(said), [-0.5] * len(said), FinishReason.STOP, spans, "replica-0",
            ),
        )  # fmt: skip
    builder.ended_by = known.get("ended_by", "")
    builder.notes += known.get("notes", ())
    error = "RolloutError: no" if status is RolloutStatus.FAILED else ""
    made = builder.build(
        rollout_id=f"task-{number}/0", group=f"task-{number}", index=0, agent="test",
        task={"prompt": "p"}, status=status, reward=reward, error=error,
        traceback=error and "Traceback", reward_parts=known.get("parts", {}),
        attempts=known.get("attempts", 1),
    )  # fmt: skip
    made.check()
    return made


def failed(number=0, *turns):
    return trajectory(*turns, number=number, status=RolloutStatus.FAILED)


def batch(*trajectories):
    return make_batch(trajectories, pad_id=PAD)


def test_prompts_are_padded_left_and_responses_right():
    made = batch(trajectory(([1, 2, 3], [7])), trajectory(([4], [8, 9]), number=1)).tensors
    assert made["prompts"].tolist() == [[1, 2, 3], [PAD, PAD, 4]]
    assert made["responses"].tolist() == [[7, PAD], [8, 9]]
    assert made["input_ids"].tolist() == [[1, 2, 3, 7, PAD], [PAD, PAD, 4, 8, 9]]


def test_attention_and_positions_follow_the_padding():
    made = batch(trajectory(([1, 2, 3], [7])), trajectory(([4], [8, 9]), number=1)).tensors
    assert made["attention_mask"].tolist() == [[1, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 0], [0, 0, 0, 1, 2]]


def test_only_sampled_tokens_are_under_the_response_mask():
    made = batch(trajectory(([1], [7]), ([1, 7, 5, 5], [8]))).tensors
    assert made["response_mask"].tolist() == [[1, 0, 0, 1]]
    assert made["rollout_log_probs"].tolist() == [[-0.5, 0.0, 0.0, -0.5]]


def test_types_and_shapes_are_as_promised():
    made = batch(trajectory(([1, 2], [7, 8, 9]), reward=1.0)).tensors
    floats = {"rollout_log_probs", "rm_scores"}
    wide = {"input_ids", "attention_mask", "position_ids"}
    for name, array in made.items():
        assert array.dtype == (np.float32 if name in floats else np.int64), name
        assert array.shape == (1, 5 if name in wide else 2 if name == "prompts" else 3), name


def test_the_reward_is_on_the_last_token_of_the_response():
    made = batch(trajectory(([1], [7, 8]), reward=0.5), trajectory(([1], [7, 8, 9]), number=1))
    assert made.tensors["rm_scores"].tolist() == [[0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]


def test_a_forked_rollout_has_a_row_per_segment_and_its_reward_once():
    made = batch(trajectory(([1], [7]), ([2], [8, 9]), reward=1.0))
    assert made.rows["segment"].tolist() == [0, 1]
    assert made.rows["uid"].tolist() == ["task-0/0", "task-0/0"]
    assert made.rows["fork_reason"].tolist()[0] == ""
    assert "differs" in made.rows["fork_reason"].tolist()[1]
    assert made.tensors["rm_scores"].tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_rows_say_where_in_their_rollout_they_belong():
    forked = trajectory(([1, 2], [7]), ([1, 2, 9], [8]), ([1, 2, 9, 8, 3], [4]))
    made = batch(forked, failed(1), trajectory(([1], []), number=2))
    assert made.rows["trajectory_rows"].tolist() == [2, 2, 1, 1]
    assert made.rows["parent"].isna().tolist() == [True, False, True, True]
    assert (made.rows["parent"][1], made.rows["shared_tokens"][1]) == (0, 2)


def test_rows_say_how_their_rollout_came_to_its_end():
    made = batch(
        trajectory(([1], [7]), ended_by="max_turns", attempts=2, notes=["cut 3", "cut 4"]),
        failed(1),
    )
    assert made.rows["ended_by"].tolist() == ["max_turns", ""]
    assert made.rows["attempts"].tolist() == [2, 1]
    assert made.rows["notes"].tolist() == ["cut 3; cut 4", ""]


def test_rows_with_and_without_log_probabilities_share_a_batch():
    """Zeros where there are none, and a column that tells them from a certain token's."""
    bare = replace(trajectory(([1], [7])), segments=(Segment([1], [7, 8], [1, 1], [], ()),))
    made = batch(trajectory(([1], [7, 8, 9])), bare, failed(2), trajectory(([1], []), number=3))
    assert made.tensors["rollout_log_probs"].tolist()[:2] == [[-0.5, -0.5, -0.5], [0.0, 0.0, 0.0]]
    assert made.rows["has_log_probs"].tolist() == [True, False, True, True]
    assert batch(bare).tensors["rollout_log_probs"].shape == (1, 2)


def test_texts_that_no_column_can_hold_do_not_cost_the_batch():
    odd = replace(failed(), error="E: half \ud800", rollout_id="\ud800")
    assert batch(odd).rows["error"].tolist() == ["E: half \ufffd"]


def test_rows_can_be_selected_with_their_tensors():
    made = batch(trajectory(([1], [7]), reward=1.0), failed(1), trajectory(([2], [8]), number=2))
    done = made.select(made.rows["status"] == "done")
    assert done.tensors["prompts"].tolist() == [[1], [2]]
    assert done.rows["uid"].tolist() == ["task-0/0", "task-2/0"]
    assert done.rows.index.tolist() == [0, 1]
    assert done.select(done.rows["reward"] > 0).rows["uid"].tolist() == ["task-0/0"]
    assert len(made.select([False] * 3)) == 0
    assert len(made) == 3


def test_a_failed_rollout_is_a_row_with_its_error_and_no_reward():
    made = batch(trajectory(([1], [7]), reward=0.0), failed(1))
    assert made.rows["status"].tolist() == ["done", "failed"]
    assert made.rows["error"].tolist() == ["", "RolloutError: no"]
    assert made.rows["reward"].isna().tolist() == [False, True]
    assert made.tensors["responses"].tolist() == [[7], [PAD]]
    assert "1 failed" in repr(made)


def test_a_failed_rollout_keeps_what_it_had_sampled():
    made = batch(failed(0, ([1], [7, 8])))
    assert made.tensors["responses"].tolist() == [[7, 8]]


def test_an_empty_generation_is_a_row_with_an_empty_response():
    made = batch(trajectory(([1], []), reward=1.0), trajectory(([2], [8]), number=1))
    assert made.tensors["response_mask"].tolist() == [[0], [1]]
    assert made.rows["reward"].tolist()[0] == 1.0
    assert made.rows["min_version"].isna().tolist() == [True, False]


def test_a_batch_of_nothing_but_failures_has_rows():
    made = batch(failed(0), failed(1))
    assert len(made) == 2
    assert made.tensors["input_ids"].shape == (2, 0)


def test_a_batch_of_no_rollouts_is_empty():
    made = batch()
    assert len(made) == 0
    assert set(made.rows.columns) >= {"uid", "reward", "status"}


def test_rows_with_and_without_reward_parts_share_a_batch():
    made = batch(
        trajectory(([1], [7]), reward=1.5, parts={"form": 0.5, "right": 1.0}),
        trajectory(([1], [7]), reward=0.5, parts={"form": 0.5}, number=1),
        trajectory(([1], [7]), number=2),
        failed(3),
    )
    assert made.rows["reward_form"].isna().tolist() == [False, False, True, True]
    assert made.rows["reward_right"].tolist()[0] == 1.0
    assert made.rows["reward_right"].isna().tolist() == [False, True, True, True]


def test_columns_have_one_type_whatever_the_values_are():
    """So that the parquet files of many batches can be read together."""
    batches = [
        batch(trajectory(([1], [7]), reward=1.0, parts={"form": 1.0})),
        batch(trajectory(([1], [7]), reward=0.5, parts={"form": 0.5})),
        batch(trajectory(([1], []), parts={"form": 1.0}), failed(1)),
    ]
    types = [made.rows.dtypes.astype(str).to_dict() for made in batches]
    assert types[0] == types[1] == types[2]
    assert (types[0]["reward"], types[0]["min_version"]) == ("Float64", "Int64")
    shared = [name for name in types[0] if name != "reward_form"]
    empty = batch().rows.dtypes.astype(str).to_dict()
    assert {name: empty[name] for name in shared} == {name: types[0][name] for name in shared}


def test_versions_and_turns_are_told_per_row():
    made = batch(trajectory(([1], [7]), ([1, 7, 2], [8])))
    (row,) = made.rows.to_dict("records")
    assert (row["min_version"], row["max_version"], row["num_turns"]) == (0, 1, 2)
    assert row["finish_reason"] == "stop"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 9), min_size=1, max_size=5),
                st.lists(st.integers(0, 9), max_size=5),
            ),
            max_size=3,
        ),
        max_size=6,
    )
)
def test_every_sampled_token_can_be_found_in_the_tensors(stories):
    trajectories = [trajectory(*turns, number=i) for i, turns in enumerate(stories)]
    made = batch(*trajectories)
    tensors = made.tensors
    segments = [s for t in trajectories for s in (t.segments or (None,))]
    assert len(made) == len(segments)
    for row, segment in enumerate(segments):
        found = tensors["responses"][row][tensors["response_mask"][row] == 1].tolist()
        assert found == (segment.sampled_ids if segment else [])
        attended = tensors["input_ids"][row][tensors["attention_mask"][row] == 1].tolist()
        assert attended == (segment.prompt_ids + segment.response_ids if segment else [])
        positions = tensors["position_ids"][row][tensors["attention_mask"][row] == 1]
        assert positions.tolist() == list(range(len(attended)))
        assert not tensors["rollout_log_probs"][row][tensors["response_mask"][row] == 0].any()


def test_a_batch_can_be_saved_and_read_again(tmp_path):
    made = batch(trajectory(([1, 2], [7]), reward=1.0, parts={"form": 1.0}), failed(1))
    made.save(tmp_path, "b")
    again = RolloutBatch.load(tmp_path, "b")
    assert again.tensors.keys() == made.tensors.keys()
    for name, array in made.tensors.items():
        np.testing.assert_array_equal(again.tensors[name], array)
    pd.testing.assert_frame_equal(again.rows, made.rows)
