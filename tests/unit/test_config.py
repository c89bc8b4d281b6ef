"""A wrong pool is refused when it is described, with the field and what would be right."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.config import ENGINES, PoolConfig
from workbench.errors import ConfigError


def pool(**changes):
    return PoolConfig(**{"model": "smollm2-135m", **changes})


def test_a_model_is_all_that_is_needed():
    assert (pool().replicas, pool().engine, pool().devices_per_replica) == (1, "vllm", 1)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine": "sglang"}, "engine"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": 1.5}, "replicas"),
        ({"replicas": "2"}, "replicas"),
        ({"session_idle_s": 0}, "session_idle_s"),
        ({"start_timeout_s": -1.0}, "start_timeout_s"),
        ({"engine_args": {"model": "other"}}, "engine_args['model']"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(changes, field):
    with pytest.raises(ConfigError) as refused:
        pool(**changes)
    assert refused.value.field == field
    assert refused.value.allowed


def test_an_unknown_engine_is_told_the_known_ones():
    with pytest.raises(ConfigError, match=", ".join(ENGINES)):
        pool(engine="sglang")


def test_a_replica_takes_tensor_times_pipeline_devices():
    args = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    assert pool(engine_args=args).devices_per_replica == 8


@pytest.mark.parametrize("size", [0, 2.0, "2"])
def test_a_parallel_size_that_is_none_is_refused_by_its_field(size):
    with pytest.raises(ConfigError) as refused:
        pool(engine_args={"tensor_parallel_size": size})
    assert refused.value.field == "engine_args['tensor_parallel_size']"


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        pool().replicas = 2


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError, match="replica_count"):
        pool(replica_count=2)
