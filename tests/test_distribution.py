"""The wheel and the source distribution: what is in them, and that a new environment with the wheel alone runs README.

Slow, and needs the index of packages: building takes hatchling, and a new environment NumPy and LLVM.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
TESTED = ("3.11", "3.12", "3.13")
# What a reader of README does first, in the order of the page.
FIRST_BLOCK = """
import doctest, re, sys
from pathlib import Path
import dualbcast
assert "site-packages" in dualbcast.__file__, dualbcast.__file__
(block, *_) = re.findall(r"^```python\\n(.*?)^```$", Path(sys.argv[1]).read_text(encoding="utf-8"), re.M | re.S)
test = doctest.DocTestParser().get_doctest(block, {}, "README", None, 0)
assert len(test.examples) > 5
sys.exit(doctest.DocTestRunner().run(test).failed)
"""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a command outside of the repository, and return what it prints."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    pytest.importorskip("build", reason="pip install build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def source(built: Path) -> Path:
    (path,) = built.glob("*.tar.gz")
    return path


def names_of_source(path: Path) -> set[str]:
    """The files of a source distribution, without the folder around them."""
    with tarfile.open(path) as archive:
        return {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}


def test_twine_accepts_both(built: Path) -> None:
    pytest.importorskip("twine", reason="pip install twine")
    text = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *built.iterdir())
    assert text.count("PASSED") == 2
    assert "WARNING" not in text.upper()


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    # The texts in C are what a translated kernel is put between, to count it.
    package = {
        path.relative_to(ROOT).as_posix()
        for ending in ("py", "c")
        for path in (ROOT / "dualbcast").rglob(f"*.{ending}")
    }
    assert {"dualbcast/counting/counting.c", "dualbcast/counting/executor.c"} < package
    information = {name for name in names if ".dist-info/" in name}
    assert set(names) - information == package | {"dualbcast/py.typed"}
    assert {name.partition("/")[2] for name in information} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
    }


def test_the_source_distribution_has_what_the_repository_has(source: Path) -> None:
    names = names_of_source(source)
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        assert {name for name in listed.stdout.splitlines() if (ROOT / name).exists()} <= names
    for name in (
        "CITATION.cff",
        "LICENSE",
        "CHANGELOG.md",
        "PKG-INFO",
        "docs/map.md",
        "bench/graph_cost.py",
    ):
        assert name in names
    assert "tests/test_distribution.py" in names
    assert not [name for name in names if name.endswith((".pyc", ".so", ".whl")) or "/__pycache__/" in name]


def test_the_repository_and_the_source_distribution_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    (direct,) = tmp_path.glob("*.whl")
    assert direct.name == wheel.name
    assert direct.read_bytes() == wheel.read_bytes()


def test_the_page_of_a_package_index_has_no_relative_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes)
    page = payload.decode()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = r"\]\((?!https?://|#)"
    assert re.search(relative, readme)
    assert not re.search(relative, page)
    for target in re.findall(r"\]\((?!https?://|#)([^)]+)\)", readme):
        assert f"`{target}`" in page
    # Nothing else differs: the lines without links are README's.
    assert [line for line in readme.splitlines() if "](" not in line and line not in page] == []


def interpreter(version: str) -> str:
    """A Python of this version, or a skip."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"there is no Python {version} here")
    return found


@pytest.mark.parametrize("version", TESTED)
def test_the_wheel_alone_runs_what_readme_shows(version: str, wheel: Path, tmp_path: Path) -> None:
    home, cache = tmp_path / "venv", tmp_path / "cache"
    run(interpreter(version), "-m", "venv", home)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    run(scripts / "pip", "install", "--quiet", wheel, cwd=tmp_path)
    run(scripts / "pip", "check", cwd=tmp_path)
    environment = {"DUALBCAST_CACHE_DIR": str(cache)}
    run(scripts / "python", "-c", FIRST_BLOCK, ROOT / "README.md", cwd=tmp_path, **environment)
    quick = ("--arity", "1:2", "--n", "64", "--repeat", "1", "--min-time", "0")
    assert "moved" in run(scripts / "dualbcast", "sweep", *quick, cwd=tmp_path, **environment)
    assert str(cache) in run(scripts / "dualbcast", "cache", "info", cwd=tmp_path, **environment)
    # What is uninstalled is the package. The cache stays; docs/start/install.md says so.
    run(scripts / "pip", "uninstall", "--yes", "dualbcast", cwd=tmp_path)
    assert not list(home.glob("lib/*/site-packages/dualbcast*"))
    assert not list(scripts.glob("dualbcast*"))
    assert any(cache.rglob("*.bin"))
