"""Each thing works as the first that a process does: what it needs is imported when it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_each_thing_is_done_first(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parents[1] / "oracles" / "first_things.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
