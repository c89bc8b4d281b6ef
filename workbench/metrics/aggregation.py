"""Many values of a figure → one, as the figure itself declares. Nothing is guessed from a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pandas as pd

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Hashable


class Aggregation(StrEnum):
    """How the values of a column become one. Missing values take no part."""

    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class MeanBy:
    """The mean, each value weighing as much as another column says."""

    weight: str


Declared = Mapping[str, Aggregation | MeanBy]
"""Column → how it is brought together."""


def aggregate(frame: pd.DataFrame, declared: Declared) -> pd.Series[Any]:
    """One value per column, in the frame's order; missing where a column has no value.

    Raises:
        ConfigError: a column that nobody declared, or a weight that is not there or is negative.
    """
    unknown = [str(name) for name in frame.columns if name not in declared]
    if unknown:
        allowed = f"columns that declare how they aggregate: {', '.join(declared)}"
        raise ConfigError("frame", f"nobody declared {', '.join(unknown)}", allowed=allowed)
    found = {name: _one(frame, name, declared[str(name)]) for name in frame.columns}
    return pd.Series(found, index=frame.columns, dtype=object)


def _one(frame: pd.DataFrame, name: Hashable, how: Aggregation | MeanBy) -> Any:
    values = frame[name].dropna()
    if isinstance(how, MeanBy):
        return _mean_by(frame, values, how.weight, name)
    if values.empty:
        return None
    if how is Aggregation.LAST:
        return values.iloc[-1]
    numbers = pd.to_numeric(values)
    return getattr(numbers, how.value)()


def _mean_by(frame: pd.DataFrame, values: pd.Series[Any], weight: str, name: Hashable) -> Any:
    if weight not in frame.columns:
        allowed = [str(column) for column in frame.columns]
        raise ConfigError(
            "frame", f"{name} is weighed by {weight}, which it lacks", allowed=allowed
        )
    weights = pd.to_numeric(frame.loc[values.index, weight]).fillna(0.0)
    if (weights < 0).any():
        raise ConfigError(weight, f"below 0, and weighs {name}", allowed="numbers from 0")
    total = weights.sum()
    return (pd.to_numeric(values) * weights).sum() / total if total > 0 else None
