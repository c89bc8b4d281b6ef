"""Trajectories outside of this process: as records, in files, tables, chats and data sets."""

from workbench.records.chats import sft_chats, write_chats
from workbench.records.dataset import from_dataset, to_dataset
from workbench.records.files import append_trajectory, read_trajectories, write_trajectories
from workbench.records.frame import trajectory_frame
from workbench.records.schema import SCHEMA_VERSION, from_record, to_record

__all__ = [
    "SCHEMA_VERSION",
    "append_trajectory",
    "from_dataset",
    "from_record",
    "read_trajectories",
    "sft_chats",
    "to_dataset",
    "to_record",
    "trajectory_frame",
    "write_chats",
    "write_trajectories",
]
