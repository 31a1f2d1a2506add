"""The documentation tells the truth: every Python block runs and gives what is shown, and pages are current."""

from __future__ import annotations

import doctest
import importlib.metadata
import re
import runpy
import traceback
from pathlib import Path

import pytest
from test_imports import STAGES

import dualbcast

ROOT = Path(__file__).parent.parent
COMPILER = tuple(
    str(Path(dualbcast.__file__).parent / stage) for stage in ("ir", "rules", "frontend", "autodiff", "passes")
)
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "bench" / "README.md",
    ]
)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# Libraries that users bring themselves. A page that imports one is run where that is installed.
OPTIONAL = ["jax", "torch"]
FILE = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The libraries without which a page's blocks do not run.
NEEDS = {"scipy.md": ("scipy", "sympy"), "notebooks.md": ("cloudpickle",), "counting.md": ("matplotlib",)}
# The packages whose releases a page names, because what it shows differs from one release to the next.
RELEASES = {"counting.md": ("numba-cuda", "nvidia-nvjitlink")}
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def _release(package: str) -> str:
    """The release of a package that is installed, or a skip."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")


@EACH_PAGE
def test_files_shown_run(page: Path) -> None:
    """A block that stands for a file of the reader's."""
    for text in FILE.findall(page.read_text(encoding="utf-8")):
        exec(compile(text, page.name, "exec"), {})


@EACH_PAGE
def test_python_blocks_run(page: Path) -> None:
    """The blocks of a page share their names, as a reader who follows it would have it."""
    text = page.read_text(encoding="utf-8")
    for library in NEEDS.get(page.name, ()):
        pytest.importorskip(library)
    for package in RELEASES.get(page.name, ()):
        if (release := _release(package)) not in text:
            pytest.skip(f"the page is of another release than {release}")
    source = "\n".join(BLOCK.findall(text))
    if not source:
        pytest.skip("no Python on this page")
    for library in OPTIONAL:
        if re.search(rf"^(>>> )?import {library}\b", source, re.MULTILINE):
            pytest.importorskip(library)
    name = page.relative_to(ROOT).as_posix()
    test = doctest.DocTestParser().get_doctest(source, {"__name__": "__main__"}, name, str(page), 0)
    assert test.examples, "blocks are shown as sessions, so that their results are checked"
    output: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert results.failed == 0, "".join(output)


def test_the_rules_page_is_that_of_the_table(request: pytest.FixtureRequest) -> None:
    generate = runpy.run_path(str(ROOT / "docs" / "generate_rules.py"))
    page, path = generate["page"](), generate["PAGE"]
    if request.config.getoption("--update-golden"):
        path.write_text(page, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page, "run: python docs/generate_rules.py"


def test_the_page_of_scipys_functions_is_that_of_the_table(request: pytest.FixtureRequest) -> None:
    scipy = pytest.importorskip("scipy")
    generate = runpy.run_path(str(ROOT / "docs" / "generate_scipy_special.py"))
    page, path = generate["page"](), generate["PAGE"]
    if request.config.getoption("--update-golden"):
        path.write_text(page, encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    if f"(release {scipy.__version__})" not in text:
        pytest.skip("the page is of another release of SciPy")
    assert text == page, "run: python docs/generate_scipy_special.py"
    known, ufuncs, missing = generate["supported"](), generate["ufuncs"](), generate["MISSING"]
    assert not missing.keys() & known, "these are supported: no reason is needed"
    assert not missing.keys() - {*ufuncs}, "SciPy has no such ufunc"
    assert len(known & {*ufuncs}) >= 60
    for name in ufuncs:
        assert len(re.findall(rf"^\| `{name}` \| (?:yes \| \||\| it .{{10,}} \|)$", text, re.MULTILINE)) == 1, name


def test_the_errors_page_is_what_its_examples_give(request: pytest.FixtureRequest) -> None:
    generate = runpy.run_path(str(ROOT / "docs" / "generate_errors.py"))
    page, path = generate["page"](), generate["PAGE"]
    if request.config.getoption("--update-golden"):
        path.write_text(page, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page, "run: python docs/generate_errors.py"
    assert page.count("### ") >= 30


def test_the_errors_on_the_page_show_no_frame_of_the_compiler() -> None:
    generate = runpy.run_path(str(ROOT / "docs" / "generate_errors.py"))
    for examples in generate["GROUPS"].values():
        for example in examples:
            error = generate["error_of"](example)
            frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
            assert not [name for name in frames if name.startswith(COMPILER)], example.title
            assert "".join(traceback.format_exception(error)).count("Traceback") == 1, example.title
            assert str(ROOT) not in str(error), example.title


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


MAP = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")


def test_the_map_names_files_that_exist() -> None:
    paths = re.findall(r"(?<![\w./\[-])(?:\w+/)*\w+\.py\b|(?<=`)(?:\w+/)+(?=`)", MAP)
    assert len(paths) > 80
    inside = [path for path in paths if path.split("/")[0] not in ("docs", "tests")]
    folder = Path(dualbcast.__file__).parent
    missing = [path for path in inside if path != "dualbcast/" and not (folder / path).exists()]
    missing += [path for path in paths if path not in inside and not (ROOT / path).exists()]
    assert missing == []


def test_the_map_lists_folders_in_the_order_of_their_imports() -> None:
    table = re.findall(r"^\| `(\w+)/` \|", MAP, re.MULTILINE)
    folder = Path(dualbcast.__file__).parent
    assert table == [stage for stage in reversed(STAGES) if (folder / stage).is_dir()]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")), ids=lambda path: path.stem)
def test_a_decision_has_a_context_figures_and_an_end(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {path.name[:3]}: ")
    parts = re.findall(r"^\*\*(Context|Decision|Figures|When to revisit)\b", text, re.MULTILINE)
    assert parts == ["Context", "Decision", "Figures", "When to revisit"]
