"""Trajectories as a data set of Hugging Face's ``datasets``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.records.schema import from_record
from workbench.records.table import to_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from workbench.trajectory import Trajectory


def to_dataset(trajectories: Iterable[Trajectory]) -> Any:
    """A ``datasets.Dataset`` with the columns of the parquet file.

    Its rows are read by :func:`from_dataset`, and one by one by
    :func:`workbench.records.schema.from_record`.

    Raises:
        ConfigError: the package ``datasets`` is not there.
    """
    datasets = optional("datasets")
    return datasets.Dataset(datasets.table.InMemoryTable(to_table(trajectories)))


def from_dataset(rows: Iterable[Mapping[str, Any]]) -> list[Trajectory]:
    """What :func:`to_dataset` made a data set of, also after it was saved, filtered or shuffled.

    Raises:
        ConfigError: a row is no record; names what is wrong with it.
    """
    return [from_record(row) for row in rows]


def optional(package: str) -> Any:
    """A package that this one works with and does not need.

    Raises:
        ConfigError: it is not there, or lacks something itself.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(
            package, f"cannot be imported: {error}", allowed=f"an environment with {package} in it"
        ) from error
