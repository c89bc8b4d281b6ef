"""A batch in verl's form: checked with verl where it is installed, else with a stand-in for it."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit.rollout.test_batch import batch, failed, trajectory
from workbench.errors import ConfigError

HAS_VERL = find_spec("verl") is not None


class StandIn:
    """What verl's class does with what it is given, as far as these tests look at it."""

    def __init__(self, tensors, non_tensors, meta_info):
        self.batch, self.non_tensor_batch, self.meta_info = tensors, non_tensors, meta_info
        sizes = {len(values) for values in (*tensors.values(), *non_tensors.values())}
        assert len(sizes) == 1
        assert all(isinstance(values, np.ndarray) for values in non_tensors.values())

    @classmethod
    def from_dict(cls, *, tensors, non_tensors, meta_info):
        return cls(tensors, non_tensors, meta_info)

    def __len__(self):
        return len(self.batch["prompts"])


@pytest.fixture(autouse=True)
def verl(monkeypatch):
    if not HAS_VERL:
        monkeypatch.setitem(sys.modules, "verl", SimpleNamespace(DataProto=StandIn))


def test_tensors_are_the_batch_s_own():
    made = batch(trajectory(([1, 2], [7]), reward=1.0), trajectory(([1], [8, 9]), reward=0.0))
    proto = made.to_dataproto()
    assert len(proto) == 2
    assert set(proto.batch.keys()) == set(made.tensors)
    for name, array in made.tensors.items():
        np.testing.assert_array_equal(proto.batch[name].numpy(), array)


def test_rollouts_are_grouped_by_their_task():
    """By ``uid``, as verl's estimators of advantages do."""
    proto = batch(trajectory(([1], [7])), trajectory(([1], [8]), number=1)).to_dataproto()
    assert proto.non_tensor_batch["uid"].tolist() == ["task-0", "task-1"]
    assert proto.non_tensor_batch["rollout_id"].tolist() == ["task-0/0", "task-1/0"]


def test_turns_and_versions_have_verl_s_names():
    proto = batch(trajectory(([1], [7]), ([1, 7, 2], [8])), failed(1)).to_dataproto()
    columns = proto.non_tensor_batch
    assert columns["__num_turns__"].tolist() == [2, 0]
    assert columns["__num_turns__"].dtype == np.int32
    assert columns["min_global_steps"].tolist() == [0, None]
    assert columns["max_global_steps"].tolist() == [1, None]
    assert "min_version" not in columns


def test_what_is_missing_is_none_in_arrays_of_objects():
    proto = batch(
        trajectory(([1], [7]), reward=1.0, parts={"form": 0.5}),
        trajectory(([1], []), reward=0.0, number=1),
    ).to_dataproto()
    assert proto.non_tensor_batch["reward_form"].tolist() == [0.5, None]
    assert proto.non_tensor_batch["status"].tolist() == ["done", "done"]
    for name, values in proto.non_tensor_batch.items():
        assert values.dtype == (np.int32 if name == "__num_turns__" else object), name
    assert proto.meta_info == {"timing": {}, "reward_extra_keys": ["reward_form"]}


def test_a_rollout_without_a_reward_is_not_scored_0():
    made = batch(trajectory(([1], [7]), reward=1.0), failed(1))
    assert "rm_scores" not in set(made.to_dataproto().batch.keys())
    assert "rm_scores" in made.tensors
    scored = made.select(made.rows["reward"].notna()).to_dataproto()
    assert scored.batch["rm_scores"].tolist() == [[1.0]]


def test_a_batch_of_nothing_is_one_of_verl_s_too():
    assert len(batch().to_dataproto()) == 0


@pytest.mark.skipif(not HAS_VERL, reason="needs verl")
def test_verl_can_cut_and_join_it():
    from verl import DataProto

    proto = batch(
        trajectory(([1], [7]), reward=1.0), trajectory(([1], [8]), reward=0.0)
    ).to_dataproto()
    proto.check_consistency()
    assert len(DataProto.concat(proto.chunk(2))) == 2


def test_without_verl_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "verl", None)
    with pytest.raises(ConfigError, match="an environment with verl in it") as refused:
        batch().to_dataproto()
    assert refused.value.field == "verl"
