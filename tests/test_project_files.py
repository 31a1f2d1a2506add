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
