"""Batches in verl's form.

    here                              in the DataProto
    tensors                           ``batch``, under the same names
    column ``group``                  ``uid``: what verl's estimators group by
    column ``uid``                    ``rollout_id``
    column ``num_turns``              ``__num_turns__``, int32
    columns ``min_version``, …        ``min_global_steps``, ``max_global_steps``
    other columns                     the same names, as arrays of objects, None where missing
    names of the reward's parts       ``meta_info["reward_extra_keys"]``

As in verl, ``rm_scores`` are there only if every row's rollout has a reward: a rollout that failed
must not count as one that earned 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from workbench.records.dataset import optional

if TYPE_CHECKING:
    import torch

RENAMED = {
    "uid": "rollout_id",
    "group": "uid",
    "min_version": "min_global_steps",
    "max_version": "max_global_steps",
}


def to_dataproto(tensors: dict[str, torch.Tensor], rows: pd.DataFrame) -> Any:
    """A ``verl.DataProto`` of a batch.

    Args:
        tensors: of a :class:`workbench.rollout.batch.RolloutBatch`, [B, …] each.
        rows: its B rows.

    Raises:
        ConfigError: verl is not there.
    """
    verl = optional("verl")
    if rows["reward"].isna().any():
        tensors = {name: tensor for name, tensor in tensors.items() if name != "rm_scores"}
    columns: dict[str, npt.NDArray[Any]] = {
        RENAMED.get(name, name): _objects(rows[name]) for name in rows.columns
    }
    columns["__num_turns__"] = columns.pop("num_turns").astype(np.int32)
    parts = [name for name in rows.columns if name.startswith("reward_")]
    return verl.DataProto.from_dict(
        tensors=tensors,
        non_tensors=columns,
        meta_info={"timing": {}, "reward_extra_keys": parts},
    )


def _objects(column: pd.Series[Any]) -> npt.NDArray[Any]:
    """A column's values as Python has them, None where they are missing."""
    values = np.empty(len(column), dtype=object)
    values[:] = [None if pd.isna(value) else value for value in column.tolist()]
    return values
