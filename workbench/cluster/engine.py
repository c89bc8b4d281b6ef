"""The engine of one replica, and what its HTTP routes are, by the kind of engine."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

from workbench.engines.http import replica_app
from workbench.models import resolve_model

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from workbench.cluster.replica import ReplicaSpec
    from workbench.engines.base import Engine
    from workbench.engines.host import EngineHost


async def make_engine(spec: ReplicaSpec, profile_dir: str) -> Engine:
    """Not started yet.

    Raises:
        ConfigError: the model cannot be had on this node.
    """
    if spec.engine == "simulated":
        from workbench.engines.simulated import SimulatedArgs, SimulatedEngine

        return SimulatedEngine(spec.replica_id, SimulatedArgs(**spec.engine_args))
    from workbench.engines.vllm import VLLMEngine
    from workbench.engines.vllm_setup import prepare_environment

    model_dir = await asyncio.to_thread(resolve_model, spec.model)
    sizes = (spec.engine_args.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline"))
    prepare_environment(spec.device, max(1, spec.threads // math.prod(sizes)))
    return VLLMEngine(
        spec.replica_id,
        str(model_dir),
        spec.engine_args,
        device=spec.device,
        seed=spec.seed,
        profile_dir=profile_dir,
    )


async def make_app(spec: ReplicaSpec, engine: Engine, host: EngineHost) -> ASGIApp:
    """What the replica serves over HTTP."""
    from workbench.engines.vllm import VLLMEngine

    if not isinstance(engine, VLLMEngine):
        return replica_app(host.probe, _no_metrics)
    if spec.openai_routes:
        return await engine.openai_app(spec.model)
    from workbench.engines.vllm_http import exposition

    return replica_app(host.probe, exposition)


def _no_metrics() -> tuple[bytes, str]:
    return b"", "text/plain; version=0.0.4; charset=utf-8"
