"""A data set holds what the records hold, through all that is done to data sets."""

from __future__ import annotations

import sys

import pytest

from tests.unit.records.made import played
from workbench.errors import ConfigError
from workbench.records import from_dataset, from_record, to_dataset
from workbench.trajectory import Segment, ToolCall

MIXED = [
    played(0, task={"prompt": "p", "only": 1}, messages=({"role": "user", "content": "x"},)),
    played(1, task={"messages": []}, reward=None, reward_parts={}, extra={"k": [1, {"z": None}]}),
    played(2, segments=(), turns=(), tool_calls=(ToolCall(0, "t", {"a": [1]}, "r", True),)),
    played(3, segments=(Segment([1], [2], [1], [float("-inf")], ()),)),
]


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    return pytest.importorskip("datasets")


def test_rows_come_back_as_the_trajectories_that_they_were(datasets):
    made = to_dataset(MIXED)
    assert isinstance(made, datasets.Dataset)
    assert from_dataset(made) == MIXED
    assert from_record(made[1]) == MIXED[1]


def test_a_data_set_can_be_shuffled_filtered_and_saved(datasets, tmp_path):
    made = to_dataset(MIXED).filter(
        lambda row: row["reward"] is not None, load_from_cache_file=False
    )
    made.save_to_disk(tmp_path / "d")
    again = datasets.load_from_disk(tmp_path / "d").select([2, 0])
    assert from_dataset(again) == [MIXED[3], MIXED[0]]


def test_rows_of_something_else_are_refused(datasets):
    with pytest.raises(ConfigError, match="no record of a rollout"):
        from_dataset(datasets.Dataset.from_list([{"text": "a"}]))


def test_without_the_package_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match="an environment with datasets in it") as refused:
        to_dataset([])
    assert refused.value.field == "datasets"
