"""The script that counts the files of a call, on a package of which the right counts are known."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"

FILES = {
    "__init__": "",
    "first": "from followed.second import helper\n\ndef f(n):\n    return sum(helper(k) for k in range(n))\n",
    "second": "def helper(k):\n    return twice(k) + 1\n\ndef twice(k):\n    return 2 * k\n",
    "third": "def unused():\n    pass\n",
}


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    folder = tmp_path / "followed"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda call: importlib.import_module("files_of_a_call").follow(call, folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "followed"]:
        del sys.modules[name]


def test_entries_and_moves(follow: Any) -> None:
    first = importlib.import_module("followed.first")
    passage = follow(lambda: first.f(3))
    # f, then three times the generator of f, helper and twice, then the generator's end.
    assert passage.entries == {"first.py": 5, "second.py": 6}
    assert list(passage.entries) == ["first.py", "second.py"]
    assert passage.moves == 6


def test_an_import_inside_the_call_counts(follow: Any) -> None:
    passage = follow(lambda: importlib.import_module("followed.first"))
    assert list(passage.entries) == ["__init__.py", "first.py", "second.py"]
    assert passage.moves == 2


def test_profiling_ends_with_the_call(follow: Any) -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        follow(fail)
    assert sys.getprofile() is None


def test_the_script() -> None:
    command = [sys.executable, str(BENCH / "files_of_a_call.py"), "--list"]
    environment = os.environ | {"PYTHONPATH": str(BENCH.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = done.stdout.splitlines()
    cold, warm = (int(line.split()[1]) for line in lines if line.startswith(("cold: ", "warm: ")))
    assert cold > warm > 1
    assert any(line.endswith("api/function.py") for line in lines)
