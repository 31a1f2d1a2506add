"""The files about the project agree with each other: one version, one list of linters, one licence."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import dualbcast

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version() -> None:
    assert PROJECT["version"] == dualbcast.__version__
    assert f"\nversion: {dualbcast.__version__}\n" in read("CITATION.cff")
    assert re.findall(r"^## (\S+?),? ", read("CHANGELOG.md"), re.MULTILINE)[0] == dualbcast.__version__


def test_one_licence_and_one_description() -> None:
    citation = " ".join(read("CITATION.cff").split())
    assert f"license: {PROJECT['license']}" in citation
    assert PROJECT["description"] in citation
    assert read("LICENSE").startswith(f"{PROJECT['license']} License")


@pytest.mark.parametrize("linter", ["ruff check", "ruff format", "mypy"])
def test_the_linters_are_the_same_everywhere(linter: str) -> None:
    assert f".venv/bin/{linter}" in read(".ci/run")
    assert f"entry: {linter}" in read(".pre-commit-config.yaml")
    assert linter in read("CONTRIBUTING.md")
    assert '"' + '", "'.join(linter.split()) + '"' in read("noxfile.py")


def test_sessions_have_the_supported_versions_of_python() -> None:
    versions = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    functions = [node for node in ast.parse(read("noxfile.py")).body if isinstance(node, ast.FunctionDef)]
    (session,) = next(function.decorator_list for function in functions if function.name == "tests")
    assert isinstance(session, ast.Call)
    assert ast.literal_eval(session.keywords[0].value) == versions


def packages_of(extra: str) -> set[str]:
    """The names of the packages that an extra brings, with those of the extras of ours that it names."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        name, _, ours = re.fullmatch(r"([\w.-]+)(\[([^]]*)\])?.*", requirement).groups()  # type: ignore[union-attr]
        if name == "dualbcast":
            found |= {package for other in ours.split(",") for package in packages_of(other.strip())}
        else:
            found.add(name)
    return found


def test_developing_takes_no_compiler_for_gpus_unless_it_is_asked_for() -> None:
    compilers = {"numba-cuda", "cuda-core", "nvidia-cuda-nvdisasm"}
    assert not {name for name in packages_of("dev") if "cuda" in name or "nvidia" in name}
    assert packages_of("dev-cuda") == packages_of("dev") | compilers | {"numpy"}
    assert compilers <= packages_of("cuda12") & packages_of("cuda13")
    assert packages_of("dev") >= packages_of("interop") | packages_of("notebook") | packages_of("test")
    assert not {"torch", "jax", "dask", "pandas", "xarray"} & packages_of("test")


def test_everything_that_needs_the_compilers_is_marked_and_runs_before_each_change() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"(importorskip|find_spec)\(.(numba_cuda|numba\.cuda|cuda\.)", text), path
    script = read(".ci/run")
    assert script.index("-e '.[dev-cuda]'") < script.index("-m cuda_compilers --slow")
    assert script.index("-e '.[dev,docs]'") < script.index("pytest -n auto\n") < script.index("dev-cuda")


def test_each_extra_is_explained() -> None:
    pages = read("docs/start/install.md") + read("CONTRIBUTING.md")
    for extra in PROJECT["optional-dependencies"]:
        assert f"`{extra}`" in pages, extra
