"""A wrong pool is refused when it is described, with the field and what would be right."""

from __future__ import annotations

import dataclasses

import pytest

from workbench.config import DEFAULT_POLICY, ENGINES, PoolConfig, RoutingConfig
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
        ({"start_timeout_s": -1.0}, "start_timeout_s"),
        ({"start_timeout_s": float("nan")}, "start_timeout_s"),
        ({"seed": True}, "seed"),
        ({"deterministic": 1}, "deterministic"),
        ({"deterministic": "yes"}, "deterministic"),
        ({"placement": "random"}, "placement"),
        ({"placement": None}, "placement"),
        ({"oversubscribe": 1}, "oversubscribe"),
        ({"openai_routes": "yes"}, "openai_routes"),
        ({"supervision": {"hang_s": 3}}, "supervision"),
        ({"supervision": None}, "supervision"),
        ({"sample_s": 0.01}, "sample_s"),
        ({"name": "a pool"}, "name"),
        ({"model": None}, "model"),
        ({"engine_args": {"model": "other"}}, "engine_args['model']"),
        ({"engine_args": {"data_parallel_size": 2}}, "engine_args['data_parallel_size']"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(changes, field):
    with pytest.raises(ConfigError) as refused:
        pool(**changes)
    assert refused.value.field == field
    assert refused.value.allowed


SECONDS = ("report_s", "session_idle_s", "owner_timeout_s", "no_replica_s", "probe_s")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in SECONDS for value in (0, -1.0, True, "1", None)),
        *((field, float("inf")) for field in SECONDS),
        *(("recovery_s", value) for value in (-1, float("nan"), False, "0")),
        *(("capacity", value) for value in (0, -1, 1.0, True, "8")),
        *(("max_failures", value) for value in (0, 2.5, None)),
        *(("events", value) for value in (0, True)),
        *(("policy", value) for value in (None, 7, object(), {"name": "random"})),
    ],
)
def test_a_wrong_rule_of_routing_is_refused_by_its_field(field, value):
    with pytest.raises(ConfigError) as refused:
        RoutingConfig(**{field: value})
    assert refused.value.field == field
    assert refused.value.allowed


def test_a_rule_may_be_at_the_edge_of_what_is_allowed():
    rules = RoutingConfig(recovery_s=0, capacity=1, max_failures=1, events=1, report_s=1e-3)
    assert (rules.recovery_s, rules.capacity) == (0, 1)
    assert RoutingConfig().capacity is None


class Own:
    """A policy of somebody's own."""

    def choose(self, turn, pinned, candidates):
        return candidates[0]


@pytest.mark.parametrize("policy", ["random", Own, Own()])
def test_a_policy_is_a_name_or_something_that_chooses(policy):
    assert RoutingConfig(policy=policy).policy is policy


@pytest.mark.parametrize("given", [DEFAULT_POLICY, "stable-hash"])
def test_a_deterministic_pool_routes_by_a_stable_hash_and_by_its_other_rules(given):
    config = pool(deterministic=True, routing=RoutingConfig(policy=given, capacity=5))
    assert config.routing_rules.policy == "stable-hash"
    assert config.routing_rules.capacity == 5
    assert config.routing.policy == given, "what was asked for stays to be seen"


def test_any_other_pool_routes_by_its_rules():
    rules = RoutingConfig(policy="random")
    assert pool(routing=rules).routing_rules is rules


@pytest.mark.parametrize("policy", ["random", "least-loaded", Own()])
def test_a_policy_that_is_not_the_same_everywhere_is_refused_where_that_is_asked_for(policy):
    with pytest.raises(ConfigError) as refused:
        pool(deterministic=True, routing=RoutingConfig(policy=policy))
    assert refused.value.field == "policy"
    assert "stable-hash" in refused.value.allowed


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
    with pytest.raises(TypeError, match="max_in_flight"):
        RoutingConfig(max_in_flight=2)
