"""The bugs of planted_bugs.py can be planted: their texts stand in the package once, and their tests exist."""

from __future__ import annotations

import pytest
from planted_bugs import BUGS, PACKAGE, ROOT, Bug, file_of, paths_of


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    assert file_of(bug, ROOT).suffix == ".py"
    assert bug.old != bug.new
    assert all((ROOT / path).exists() for path in paths_of(bug.tests, ROOT))


def test_every_folder_has_bugs() -> None:
    folders = {path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py")}
    assert folders <= {file_of(bug, ROOT).relative_to(ROOT / PACKAGE).parts[0] for bug in BUGS}
    assert len(BUGS) >= 40
