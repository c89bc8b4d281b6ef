"""A learner's process as others reach it, over a stand-in of the process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.learner.tiny import make_model
from workbench.cluster import learner as module
from workbench.cluster.learner import RayLearner
from workbench.errors import ConfigError, LearnerDiedError
from workbench.learner.config import LearnerConfig
from workbench.learner.learner import GRPOLearner
from workbench.learner.storing import CURRENT, STATE


class Process:
    """Writes weights, and may not start."""

    fails = False

    def __init__(self, handle):
        self.handle = handle

    async def ask(self, method, *args):
        if method == "start" and Process.fails:
            raise LearnerDiedError("it died while it started")
        return 1

    def kill(self):
        """It is gone."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(autouse=True)
def cluster(monkeypatch):
    """One node, without a GPU."""
    made = SimpleNamespace(gpus=0, nodes=1)
    actor = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: None))
    ray = SimpleNamespace(
        remote=lambda cls: actor,
        available_resources=lambda: {"GPU": made.gpus},
        nodes=lambda: [{"Alive": True}] * made.nodes,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "00" * 28),
    )
    monkeypatch.setattr(module, "ray", ray)
    monkeypatch.setattr(module, "Remote", Process)
    monkeypatch.setattr(Process, "fails", False)
    return made


async def test_weights_that_a_pool_may_be_on_stay_where_a_restart_fails(model, monkeypatch):
    learner = RayLearner(str(model))
    await learner.start()
    written = await learner.weights()
    written.mkdir()
    monkeypatch.setattr(Process, "fails", True)
    with pytest.raises(LearnerDiedError):
        await learner.start()
    assert written.is_dir()
    with pytest.raises(LearnerDiedError, match="not started"):
        await learner.step([])
    monkeypatch.setattr(Process, "fails", False)
    await learner.start()
    assert (await learner.weights()).parent == written.parent
    learner.close()
    assert not written.exists()


async def test_a_first_start_that_fails_leaves_nothing_behind(model, monkeypatch):
    monkeypatch.setattr(Process, "fails", True)
    learner = RayLearner(str(model))
    with pytest.raises(LearnerDiedError):
        await learner.start()
    assert learner._own is None


def test_a_device_that_is_not_there_is_refused_before_anything_starts(model, cluster):
    learner = RayLearner(str(model), LearnerConfig(device="cuda"))
    with pytest.raises(ConfigError, match=r"^device: 'cuda'.* no GPU"):
        learner.check()
    learner.check(spare_gpus=1)
    cluster.gpus = 1
    learner.check()
    RayLearner(str(model)).check()


@pytest.mark.parametrize("niceness", [-1, 20, True, 0.5])
def test_a_niceness_that_is_none_is_refused(model, niceness):
    with pytest.raises(ConfigError, match=r"^niceness: .*0 to 19"):
        RayLearner(str(model), niceness=niceness)


def test_a_folder_that_is_a_file_is_refused(model):
    with pytest.raises(ConfigError, match=r"^folder: .*is a file"):
        RayLearner(str(model), folder=__file__)


def test_what_cannot_be_loaded_is_refused_before_anything_starts(model, tmp_path, cluster):
    learner = RayLearner(str(model))
    with pytest.raises(ConfigError, match=r"^load: nothing was saved in"):
        learner.check(tmp_path / "typo")
    cluster.nodes = 2
    RayLearner(str(model), folder=tmp_path).check(tmp_path / "of another node")
    GRPOLearner(model, LearnerConfig(threads=1)).save(tmp_path / "saved")
    learner.check(tmp_path / "saved")
    other = make_model(tmp_path / "other", size=32)
    with pytest.raises(ConfigError, match=r"^load: .* is of another model: .*hidden_size is 16"):
        RayLearner(str(other)).check(tmp_path / "saved")
    step = (tmp_path / "saved" / CURRENT).read_text()
    state = tmp_path / "saved" / step / STATE
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(ConfigError, match=r"^load: .*cut off"):
        learner.check(tmp_path / "saved")
