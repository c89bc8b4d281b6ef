"""Trajectories come back from a file as they were, to the token and the last bit."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollout.test_batch import trajectory
from workbench.errors import ConfigError
from workbench.metrics.trajectories import read_trajectories, write_trajectories
from workbench.trajectory import RolloutStatus, Segment, ToolCall, Trajectory, Turn
from workbench.types import FinishReason, VersionSpan

counts = st.integers(0, 2**40)
seconds = st.floats(0, 1e6)
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | counts | seconds | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
spans = st.builds(VersionSpan, counts, counts, counts)
segments = st.lists(st.tuples(counts, st.integers(0, 1), st.floats(-1e3, 0.0)), max_size=5).flatmap(
    lambda tokens: st.builds(
        Segment,
        prompt_ids=st.lists(counts, max_size=4),
        response_ids=st.just([token for token, _, _ in tokens]),
        response_mask=st.just([mask for _, mask, _ in tokens]),
        log_probs=st.just([log_prob for _, _, log_prob in tokens]),
        version_spans=st.lists(spans, max_size=2).map(tuple),
        fork_reason=words,
    )
)  # fmt: skip
turns = st.builds(
    Turn, counts, counts, counts, st.sampled_from(FinishReason), words, counts, st.none() | counts,
    counts, st.none() | seconds, st.none() | seconds, seconds,
)  # fmt: skip
tool_calls = st.builds(
    ToolCall, counts, words, st.dictionaries(words, plain, max_size=2), words, st.booleans(), words,
    seconds,
)  # fmt: skip
trajectories = st.builds(
    Trajectory,
    rollout_id=words, group=words, index=counts, agent=words,
    task=st.dictionaries(words, plain, max_size=2),
    segments=st.lists(segments, max_size=3).map(tuple),
    turns=st.lists(turns, max_size=3).map(tuple),
    tool_calls=st.lists(tool_calls, max_size=2).map(tuple),
    messages=st.lists(st.dictionaries(words, plain, max_size=2), max_size=2).map(tuple),
    status=st.sampled_from(RolloutStatus),
    reward=st.none() | st.floats(-1e300, 1e300),
    reward_parts=st.dictionaries(words, seconds, max_size=2),
    error=words, traceback=words, wall_s=seconds,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(trajectories, max_size=3))
def test_what_is_read_equals_what_was_written(tmp_path_factory, played):
    path = tmp_path_factory.mktemp("played") / "trajectories.parquet"
    write_trajectories(path, played)
    assert read_trajectories(path) == played


def test_what_json_cannot_hold_comes_back_as_a_text(tmp_path):
    played = trajectory(([1], [7]), tool=ToolCall(0, "clock", {"zone": object}, "noon", True))
    write_trajectories(tmp_path / "t.parquet", [played])
    (again,) = read_trajectories(tmp_path / "t.parquet")
    assert again.tool_calls[0].arguments == {"zone": "<class 'object'>"}


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    pd.DataFrame({"rollout_id": ["a"]}).to_parquet(path)
    (tmp_path / "text.parquet").write_text("no parquet")
    for wrong in (path, tmp_path / "text.parquet", tmp_path / "missing.parquet"):
        with pytest.raises(ConfigError, match="what write_trajectories wrote") as refused:
            read_trajectories(wrong)
        assert refused.value.field == "path"
