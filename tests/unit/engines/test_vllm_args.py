"""vLLM's argument names are read from its source, without importing it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from workbench.engines import vllm_args
from workbench.errors import ConfigError

SOURCE = '''
class EngineArgs:
    model: str = "m"
    """Docstring."""
    max_model_len: int | None = None
    not_a_field = 3

    def method(self) -> None:
        local: int = 1

class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False

class Other:
    stranger: int = 0
'''


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A ``vllm`` made of the source above."""
    (tmp_path / "vllm" / "engine").mkdir(parents=True)
    (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('vllm was imported')")
    (tmp_path / "vllm" / "engine" / "arg_utils.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    vllm_args.known_engine_args.cache_clear()
    yield
    vllm_args.known_engine_args.cache_clear()


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    vllm_args.known_engine_args.cache_clear()
    yield
    vllm_args.known_engine_args.cache_clear()


@pytest.mark.usefixtures("installed")
def test_the_fields_of_both_classes_are_known_and_nothing_else():
    assert vllm_args.known_engine_args() == {"model", "max_model_len", "enable_log_requests"}


@pytest.mark.usefixtures("installed")
def test_a_misspelt_argument_is_refused_with_the_one_that_was_meant():
    with pytest.raises(ConfigError) as refused:
        vllm_args.check_engine_args(["max_model_len", "max_modle_len"])
    assert refused.value.field == "engine_args['max_modle_len']"
    assert refused.value.allowed == "max_model_len"


@pytest.mark.usefixtures("installed")
def test_an_argument_like_no_other_is_refused_too():
    with pytest.raises(ConfigError, match="AsyncEngineArgs"):
        vllm_args.check_engine_args(["qqqqqq"])


def test_the_arguments_of_another_engine_are_checked_alike():
    vllm_args.check_engine_args(["step_s"], ["step_s", "seed"], "SimulatedArgs")
    with pytest.raises(ConfigError, match=r"SimulatedArgs has no such.*allowed: step_s"):
        vllm_args.check_engine_args(["steps_s"], ["step_s", "seed"], "SimulatedArgs")


@pytest.mark.usefixtures("missing")
def test_where_vllm_is_not_installed_nothing_is_refused():
    vllm_args.check_engine_args(["anything"])


def test_the_installed_vllm_is_read_without_being_imported():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    code = (
        "import sys; from workbench.engines.vllm_args import check_engine_args as check;"
        "check(['tensor_parallel_size', 'max_model_len', 'enable_prefix_caching']);"
        "assert not {'vllm', 'torch'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
