"""Trajectories → batch tensors, one row per segment.

Shapes: B rows, P the longest prompt, R the longest response. A failed rollout is a row marked
failed, with what it had sampled and no reward; an empty generation is a row with an empty response.

Pure numpy; :meth:`RolloutBatch.to_torch` gives tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.errors import ConfigError
from workbench.records.plain import text
from workbench.rollout.dataproto import to_dataproto
from workbench.rollout.trajectory import Segment, Trajectory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RolloutBatch:
    """What a learner consumes."""

    tensors: dict[str, Array]
    """``prompts`` [B,P] int64 padded left; ``responses`` [B,R] int64 padded right;
    ``response_mask`` [B,R], ``attention_mask``, ``position_ids``, ``input_ids`` [B,P+R] int64;
    ``rollout_log_probs`` [B,R] float32, 0 at mask 0 and in rows that have none; ``rm_scores``
    [B,R] float32, the reward on the last token of the response, NaN-free: a row without a reward
    has none there."""
    rows: pd.DataFrame
    """One line per row, with the columns of ``COLUMNS`` and ``reward_<part>`` per reward part;
    docs/trajectories.md describes them."""

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        prompts, responses = self.tensors["prompts"], self.tensors["responses"]
        failed = int((self.rows["status"] == "failed").sum())
        return (
            f"RolloutBatch({len(self)} rows, prompts {prompts.shape[1]}, "
            f"responses {responses.shape[1]}, {failed} failed)"
        )

    def select(self, keep: Sequence[bool] | pd.Series[bool]) -> RolloutBatch:
        """The rows for which ``keep`` is true, in their order; missing is not true. Widths stay."""
        chosen = pd.Series(keep).astype("boolean").fillna(value=False).to_numpy(bool)
        tensors = {name: array[chosen] for name, array in self.tensors.items()}
        return RolloutBatch(tensors, self.rows[chosen].reset_index(drop=True))

    def to_torch(self) -> dict[str, torch.Tensor]:
        """The tensors as torch's, sharing their memory."""
        import torch

        return {name: torch.from_numpy(array) for name, array in self.tensors.items()}

    def to_dataproto(self) -> Any:
        """The batch as verl's ``DataProto``; see :mod:`workbench.rollout.dataproto`.

        Raises:
            ConfigError: verl is not there.
        """
        return to_dataproto(self.to_torch(), self.rows)

    def save(self, folder: str | Path, name: str) -> None:
        """Write ``NAME.safetensors`` and ``NAME.rows.parquet``; the folder is made."""
        from safetensors.numpy import save_file

        Path(folder).mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, Path(folder, f"{name}.safetensors"))
        self.rows.to_parquet(Path(folder, f"{name}.rows.parquet"))

    @classmethod
    def load(cls, folder: str | Path, name: str) -> RolloutBatch:
        """Read what :meth:`save` wrote.

        Raises:
            ConfigError: it is not there, or is something else.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return cls(
                load_file(Path(folder, f"{name}.safetensors")),
                pd.read_parquet(Path(folder, f"{name}.rows.parquet")),
            )
        except (OSError, ValueError, SafetensorError) as error:
            problem = f"{name!r} in {str(folder)!r} cannot be read: {error}"
            raise ConfigError("name", problem, allowed="what save() wrote") from error


def make_batch(trajectories: Iterable[Trajectory], *, pad_id: int) -> RolloutBatch:
    """One row per segment, in the order given; a trajectory without any still has one row."""
    pairs = [
        (trajectory, number, segment)
        for trajectory in trajectories
        for number, segment in enumerate(trajectory.segments or (_EMPTY,))
    ]
    tensors = _tensors([segment for _, _, segment in pairs], pad_id)
    tensors["rm_scores"] = _scores(pairs, tensors["responses"].shape)
    columns = COLUMNS | {
        f"reward_{part}": "Float64" for t, _, _ in pairs for part in t.reward_parts
    }
    rows = pd.DataFrame([_row(*pair) for pair in pairs], columns=list(columns))
    return RolloutBatch(tensors, rows.astype(columns))


_EMPTY = Segment([], [], [], [], ())


def _tensors(segments: Sequence[Segment], pad_id: int) -> dict[str, Array]:
    prompts, in_prompt = _padded([s.prompt_ids for s in segments], pad_id, left=True)
    responses, in_response = _padded([s.response_ids for s in segments], pad_id)
    attention = np.concatenate([in_prompt, in_response], axis=1).astype(np.int64)
    log_probs = [s.log_probs for s in segments]
    width = responses.shape[1]
    return {
        "prompts": prompts,
        "responses": responses,
        "response_mask": _padded([s.response_mask for s in segments], 0)[0],
        "input_ids": np.concatenate([prompts, responses], axis=1),
        "attention_mask": attention,
        "position_ids": np.maximum(attention.cumsum(axis=1) - 1, 0) * attention,
        "rollout_log_probs": _padded(log_probs, 0.0, dtype=np.float32, width=width)[0],
    }


def _padded(
    rows: Sequence[Sequence[Any]],
    fill: float,
    *,
    left: bool = False,
    dtype: Any = np.int64,
    width: int | None = None,
) -> tuple[Array, Array]:
    """Rows of any length as one [B, longest] array, and where in it they are (bool)."""
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))[:, None]
    width = max(map(len, rows), default=0) if width is None else width
    places = np.arange(width)[None, :]
    inside = places >= width - sizes if left else places < sizes
    out = np.full((len(rows), width), fill, dtype=dtype)
    out[inside] = np.fromiter(chain.from_iterable(rows), dtype, int(sizes.sum()))
    return out, inside


def _scores(pairs: Sequence[tuple[Trajectory, int, Segment]], shape: tuple[int, ...]) -> Array:
    """The reward, on the last token of the segment that the trajectory's last turn is in."""
    scores = np.zeros(shape, dtype=np.float32)
    for line, (trajectory, number, segment) in zip(scores, pairs, strict=True):
        is_last = bool(trajectory.turns) and trajectory.turns[-1].segment == number
        if is_last and trajectory.reward is not None and segment.response_ids:
            line[len(segment.response_ids) - 1] = trajectory.reward
    return scores


COLUMNS = {
    "uid": "string", "group": "string", "index": "Int64", "segment": "Int64", "parent": "Int64",
    "shared_tokens": "Int64", "trajectory_rows": "Int64", "agent": "string", "status": "string",
    "error": "string", "reward": "Float64", "ended_by": "string", "attempts": "Int64",
    "num_turns": "Int64", "finish_reason": "string", "min_version": "Int64",
    "max_version": "Int64", "has_log_probs": "boolean", "fork_reason": "string",
    "notes": "string",
}  # fmt: skip
"""Fixed types: batches are concatenated, and their files read together."""


def _row(trajectory: Trajectory, number: int, segment: Segment) -> dict[str, Any]:
    versions = trajectory.versions
    return {
        "uid": text(trajectory.rollout_id),
        "group": text(trajectory.group),
        "index": trajectory.index,
        "segment": number,
        "parent": segment.parent,
        "shared_tokens": segment.shared_tokens,
        "trajectory_rows": max(1, len(trajectory.segments)),
        "agent": text(trajectory.agent),
        "status": str(trajectory.status),
        "error": text(trajectory.error),
        "reward": trajectory.reward,
        "ended_by": text(trajectory.ended_by),
        "attempts": trajectory.attempts,
        "num_turns": trajectory.num_turns,
        "finish_reason": str(trajectory.finish_reason) if trajectory.finish_reason else None,
        "min_version": versions[0] if versions else None,
        "max_version": versions[1] if versions else None,
        "has_log_probs": len(segment.log_probs) == len(segment.response_ids),
        "fork_reason": text(segment.fork_reason),
        "notes": text("; ".join(trajectory.notes)),
        **{f"reward_{part}": value for part, value in trajectory.reward_parts.items()},
    }
