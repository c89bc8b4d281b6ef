"""Requests and outputs in vLLM's words and in ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.errors import RequestError
from workbench.types import FinishReason

if TYPE_CHECKING:
    from workbench.types import GenerateRequest


def check_ids(request: GenerateRequest) -> None:
    """Whole numbers, and nothing that only looks like one: vLLM would take it and then break.

    Its front end passes such values on, and its core ends the thread that hears of requests on the
    first message that it cannot decode; the engine would look alive and answer nobody.
    """
    for token in request.prompt_ids:
        if type(token) is not int:
            raise RequestError("prompt_ids", f"{token!r} is no token id", allowed="whole numbers")
    if type(request.priority) is not int:
        raise RequestError("priority", f"{request.priority!r}", allowed="a whole number")


def sampling_params(sampling: Mapping[str, Any]) -> Any:
    """vLLM's parameters, with what the workbench needs whatever the caller said.

    Raises:
        RequestError: names the parameter that is unknown, out of range, or of another type than
            vLLM's core decodes (see :func:`check_ids`).
    """
    import msgspec
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    given = dict(sampling)
    for name, allowed in _NOT_OURS.items():
        if given.pop(name, allowed[0]) not in allowed:
            raise RequestError(
                f"sampling_params[{name!r}]", "is not supported", allowed=f"{allowed[0]}, or absent"
            )
    given |= {
        "logprobs": 0,  # the sampled token's own, and no other
        "flat_logprobs": True,
        "detokenize": bool(given.get("stop")),  # only stop strings need text
        "output_kind": RequestOutputKind.DELTA,
    }
    try:
        if isinstance(given.get("structured_outputs"), Mapping):
            given["structured_outputs"] = StructuredOutputsParams(**given["structured_outputs"])
        params = SamplingParams(**given)
        msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
    except (VLLMClientError, ValueError, TypeError, AttributeError) as error:
        raise refusal(error, sampling, "sampling_params") from error
    return params


_NOT_OURS: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "prompt_logprobs": (None,),
    "logprobs": (0, 1, True, False, None),
}
"""Parameters whose meaning the workbench fixes, with the values that agree with it."""


def refusal(error: Exception, sampling: Mapping[str, Any], otherwise: str) -> RequestError:
    """vLLM's complaint, with the field that it is about; ``otherwise`` where it names none."""
    text = str(error)
    parameter = getattr(error, "parameter", None)
    named = [
        name for name in sampling if name == parameter or f"'{name}'" in text or f"$.{name}" in text
    ]
    return RequestError(f"sampling_params[{named[0]!r}]" if named else otherwise, text)


def sampled_log_probs(ids: list[int], logprobs: Any) -> list[float]:
    """The log-probability of each sampled token from vLLM's flat or nested form."""
    if logprobs is None:
        if ids:
            raise ValueError(f"the engine gave no log-probabilities for {len(ids)} tokens")
        return []
    if hasattr(logprobs, "start_indices"):
        values = logprobs.logprobs
        return [float(values[start]) for start in logprobs.start_indices]
    return [float(position[token].logprob) for token, position in zip(ids, logprobs, strict=True)]


def finish_reason(reason: str | None) -> FinishReason | None:
    if reason is None:
        return None
    try:
        return FinishReason(reason)
    except ValueError:
        return FinishReason.STOP  # vLLM has rules of its own that end a generation
