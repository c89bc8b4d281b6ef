"""vLLM's own HTTP: its metrics, and its OpenAI routes over an engine that runs already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp
    from vllm.v1.engine.async_llm import AsyncLLM


def exposition() -> tuple[bytes, str]:
    """vLLM's metrics as Prometheus reads them, with their content type."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    from vllm.v1.metrics.prometheus import get_prometheus_registry

    return generate_latest(get_prometheus_registry()), CONTENT_TYPE_LATEST


async def openai_app(llm: AsyncLLM, engine_args: Mapping[str, Any], model: str) -> ASGIApp:
    """vLLM's server application, which has ``/health`` and ``/metrics`` too.

    Args:
        llm: the engine.
        engine_args: what it was started with; those that the server knows tell it how to serve.
        model: the name under which callers ask for it.
    """
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.entrypoints.launchers.app import build_app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = make_arg_parser(FlexibleArgumentParser()).parse_args([])
    for name, value in engine_args.items():
        setattr(args, name, value)
    args.served_model_name = [model]
    tasks = await llm.get_supported_tasks()
    app: Any = build_app(args, tasks, llm.model_config)
    await init_app_state(llm, app.state, args, tasks)
    return app  # type: ignore[no-any-return]
