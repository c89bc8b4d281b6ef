"""Parts become a directory that loaders read, and nothing is left when its owner is gone."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.unit.checkpoint.tiny import save, weights
from workbench.checkpoint import folders
from workbench.checkpoint import spool as spooling
from workbench.checkpoint.check import check_checkpoint
from workbench.checkpoint.parts import split
from workbench.checkpoint.spool import Spool
from workbench.errors import CheckpointError, NoRoomError, PoolError

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def model(tmp_path):
    return save(tmp_path / "model")


@pytest.fixture
def spool(model, tmp_path):
    with Spool("pool", model, tmp_path / "root") as opened:
        yield opened


def publish(spool, version, state=None, part_bytes=100):
    for part in split(weights() if state is None else state, part_bytes):
        spool.write(version, pickle.loads(pickle.dumps(part, 5)))
    return spool.finish(version)


def loaded(directory):
    tensors = {}
    for file in directory.glob("*.safetensors"):
        with safe_open(file, "numpy") as opened:
            names = opened.keys()
            tensors |= {name: opened.get_tensor(name) for name in names}
    return tensors


def test_a_state_dict_of_bfloat16_comes_back_as_a_checkpoint_of_the_model(spool, model, torch):
    from safetensors.torch import load_file

    state = {name: torch.from_numpy(tensor) for name, tensor in weights().items()}
    state |= {name: state[name].bfloat16() for name in state if name.endswith("weight")}
    directory = publish(spool, 3, state, 80)
    assert check_checkpoint(directory, model).num_tensors == len(state)
    assert (directory / "config.json").read_text() == (model / "config.json").read_text()
    files = sorted(directory.glob("*.safetensors"))
    assert [f.name for f in files] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    back = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


def test_a_part_with_elements_of_many_widths_loads(tmp_path):
    state = {
        "byte": np.arange(3, dtype=np.uint8),
        "flag": np.array(True),
        "half": np.ones(1, np.float16),
        "none": np.ones((0, 2), np.float32),
        "wide": np.ones(2),
    }
    model = save(tmp_path / "model", state)
    with Spool("pool", model, tmp_path / "root") as spool:
        back = loaded(publish(spool, 0, state, 1000))
    assert {name: tensor.tolist() for name, tensor in back.items()} == {
        name: tensor.tolist() for name, tensor in state.items()
    }


@pytest.mark.parametrize("tied", [True, False])
def test_tied_names_are_each_complete_unless_the_engine_ties_them(tmp_path, tied):
    shared = np.ones((6, 4), np.float32)
    state = weights(embed__weight=shared, lm_head__weight=shared)
    model = save(tmp_path / "model", tie_word_embeddings=tied)
    with Spool("pool", model, tmp_path / "root") as spool:
        directory = publish(spool, 0, state)
        check_checkpoint(directory, model)
        assert ("lm_head.weight" in loaded(directory)) is not tied


def test_a_version_whose_parts_are_not_all_there_is_not_finished(spool):
    first, *_ = split(weights(), 1)
    spool.write(1, first)
    with pytest.raises(CheckpointError, match="version 1 is not complete: parts 2, 3, 4"):
        spool.finish(1)
    with pytest.raises(CheckpointError, match="version 2 is not complete"):
        spool.finish(2)
    other, *_ = split(weights(), 100_000)
    spool.write(1, other)
    with pytest.raises(CheckpointError, match="version 1 is not complete"):
        spool.finish(1)


def test_a_part_or_a_version_that_comes_again_replaces_itself(spool):
    for part in split(weights(layer__weight=np.zeros((4, 4), np.float32)), 100):
        spool.write(1, part)
    publish(spool, 1)
    again = publish(spool, 1, weights(layer__weight=np.ones((4, 4), np.float32)))
    assert loaded(again)["layer.weight"].min() == 1


def test_older_versions_go_and_what_is_mapped_stays_readable(spool):
    old, kept = publish(spool, 9), publish(spool, 10)
    spool.write(8, next(split(weights())))
    mapped = np.memmap(next(old.glob("*.safetensors")), mode="r")
    content = mapped.tobytes()
    spool.remove_older(10)
    assert [path.name for path in spool.folder.glob("v*")] == [kept.name]
    assert mapped.tobytes() == content
    spool.remove(10)
    spool.remove(10)
    assert list(spool.folder.glob("v*")) == []


def test_no_room_is_told_with_the_figures_before_anything_is_written(spool, monkeypatch):
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda _: Usage(0, 0, 5 << 20))
    part = next(split({"a": np.zeros(7 << 20, np.uint8)}))
    with pytest.raises(NoRoomError, match=r"part 1 of 1 takes 7 MiB, 5 MiB are free"):
        spool.write(1, part)
    assert not list(spool.folder.rglob("model-*"))


def test_room_that_others_took_meanwhile_leaves_no_half_file(spool, monkeypatch):
    def write_some(path, tensors):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spooling, "_write_file", write_some)
    with pytest.raises(NoRoomError, match="does not fit"):
        spool.write(1, next(split(weights())))
    assert not list(spool.folder.rglob("model-*"))


def test_the_folder_is_this_users_alone_and_goes_with_the_spool(model, tmp_path):
    spool = Spool("pool", model, tmp_path / "root")
    directory = publish(spool, 1)
    assert {path.stat().st_mode & 0o777 for path in (spool.folder, spool.folder.parent)} == {0o700}
    spool.close()
    spool.close()
    assert not directory.exists()
    assert not spool.folder.exists()


def test_a_folder_that_others_can_write_to_is_not_used(model, tmp_path):
    home = tmp_path / f"rollout-workbench-{os.getuid()}"
    home.mkdir(mode=0o755)
    with pytest.raises(PoolError, match="not a folder of this user alone"):
        Spool("pool", model, tmp_path)


OWNER = """
import sys
from pathlib import Path
from workbench.checkpoint.spool import Spool
spool = Spool("pool", sys.argv[1], Path(sys.argv[2]))
print(spool.folder, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_swept_and_what_lives_is_not(model, tmp_path):
    command = [sys.executable, "-c", OWNER, str(model), str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        theirs = Path(owner.stdout.readline().strip())
        with Spool("pool", model, tmp_path) as mine, Spool("pool", model, tmp_path) as other:
            assert theirs.is_dir()
            assert mine.folder.is_dir()
            assert mine.folder != other.folder
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    with Spool("pool", model, tmp_path):
        assert not theirs.exists()


def test_shared_memory_is_taken_only_with_room_for_two_versions(model, tmp_path, monkeypatch):
    shared, elsewhere, memory = tmp_path / "shm", tmp_path / "tmp", tmp_path / "meminfo"
    shared.mkdir()
    elsewhere.mkdir()
    monkeypatch.setattr(folders, "SHARED_MEMORY", shared)
    monkeypatch.setattr(folders, "MEMORY", memory)
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(elsewhere))
    with Spool("pool", model) as spool:
        assert spool.folder.is_relative_to(shared)
    memory.write_text("MemTotal: 99999999 kB\nMemAvailable:    1024 kB\n")
    with Spool("pool", model) as spool:
        assert spool.folder.is_relative_to(elsewhere)
    folders.shutil.rmtree(shared)
    with Spool("pool", model) as spool:
        assert spool.folder.is_relative_to(elsewhere)


def test_a_version_that_is_read_back_is_the_same_on_another_node(spool, model, tmp_path, torch):
    state = {name: torch.from_numpy(tensor) for name, tensor in weights().items()}
    state["embed.weight"] = state["embed.weight"].bfloat16()
    first = publish(spool, 3, state, 80)
    with Spool("pool", model, tmp_path / "another") as other:
        for part in spool.read(3):
            other.write(3, pickle.loads(pickle.dumps(part, 5)))
        second = other.finish(3)
        files = sorted(path.name for path in first.iterdir())
        assert sorted(path.name for path in second.iterdir()) == files
        assert len(files) > 3
        for name in files:
            assert (second / name).read_bytes() == (first / name).read_bytes()


def test_what_is_not_complete_cannot_be_read(spool):
    spool.write(1, next(split(weights())))
    with pytest.raises(CheckpointError):
        spool.read(1)
