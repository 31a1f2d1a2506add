"""The site: every public name has a page, and no link leads nowhere, in the repository or on the site."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from test_docs import PAGES

import dualbcast
from dualbcast import graph

ROOT = Path(__file__).parents[1]
PROGRAMS = [path.stem for path in (ROOT / "docs" / "gallery").glob("*.py") if path.name[0] != "_"]
# Only modules that users import have an `__all__`.
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "dualbcast").rglob("*.py")
    if re.search(r"^__all__ =", path.read_text(encoding="utf-8"), re.MULTILINE)
)
CLASSES = [
    dualbcast.BroadcastFunction,
    dualbcast.Explanation,
    dualbcast.Hessian,
    dualbcast.Jacobian,
    dualbcast.Pullback,
    graph.Variable,
]
# The graph's own attributes of a Variable, and the methods of any tuple and any mapping.
NOT_FOR_USERS = {
    graph.Variable: {"array", "frozen", "index", "serial", "source"},
    dualbcast.Explanation: {"count", "index"},
    dualbcast.Jacobian: {"get", "items", "keys", "values"},
}


def public_names() -> Iterator[str]:
    """The full names of all public modules, functions, classes and members."""
    for module in MODULES:
        yield module
        yield from (f"{module}.{name}" for name in importlib.import_module(module).__all__)
    for each in CLASSES:
        module = "dualbcast.graph" if each is graph.Variable else "dualbcast"
        members = {name for name in dir(each) if name[0] != "_"} - NOT_FOR_USERS.get(each, set())
        yield from (f"{module}.{each.__name__}.{name}" for name in sorted(members))


def listed_names() -> Iterator[str]:
    """The names in the tables of docs/reference."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        module = "dualbcast"
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif re.fullmatch(r"(   |\.\. autoclass:: )[\w.]+", line):
                yield f"{module}.{line.split()[-1]}"


def test_every_public_name_is_in_a_table_of_the_reference() -> None:
    """A name of `dualbcast.errors` may stand there as one of `dualbcast`; modules and members have no line."""
    listed = list(listed_names())
    assert len(listed) == len(set(listed)) > 130
    assert len(MODULES) >= 7
    missing = [
        name
        for name in public_names()
        if name not in MODULES and name.rpartition(".")[0] in MODULES and name not in listed
        if name.replace(".errors.", ".").replace(".testing.D", ".D") not in listed
    ]
    assert missing == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_shows_its_public_names_alone(module: str) -> None:
    imported = importlib.import_module(module)
    assert dir(imported) == sorted(imported.__all__)
    for name in imported.__all__:
        assert getattr(imported, name).__doc__, name


# --- links between the files of the repository ---------------------------------------------------------------------

FENCED = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes for the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        count = sum(1 for each in found if re.fullmatch(re.escape(slug) + r"(-\d+)?", each))
        found.add(f"{slug}-{count}" if count else slug)
    return found


def test_links_between_pages_lead_to_a_heading() -> None:
    followed = 0
    for page in PAGES:
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", text):
            other = (page.parent / target).resolve() if target else page
            assert anchor in anchors(other), f"{page.relative_to(ROOT)}: {target}#{anchor}"
            followed += 1
    assert followed > 10


# --- the site ------------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """The anchors of a page, and what it leads to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.targets.append(value)


def dead_links(site: Path) -> list[str]:
    """The links inside a site that lead to no file, or to no anchor of one."""
    pages = {path: Links(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    dead = []
    for path, page in pages.items():
        for target in page.targets:
            address = urlsplit(target)
            if address.scheme or address.netloc or target == "#":
                continue
            other = Path(os.path.normpath(path.parent / unquote(address.path))) if address.path else path
            anchor = unquote(address.fragment)
            if not other.is_file() or (anchor and other in pages and anchor not in pages[other].anchors):
                dead.append(f"{path.relative_to(site)}: {target}")
    return dead


def build(copy: Path, *options: str) -> Path:
    """Build the site from a copy of the pages, without a network, and with warnings as errors."""
    leave_out = shutil.ignore_patterns("generated", "build", "__pycache__", ".*")
    shutil.copytree(ROOT, copy, ignore=leave_out, dirs_exist_ok=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "-n", "-q", *options, "docs", "site"]
    offline = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(command, cwd=copy, env=os.environ | offline, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "site"


def check(site: Path) -> None:
    """No dead link, and a page for each public name."""
    from sphinx.util.inventory import InventoryFile

    assert dead_links(site) == []
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    objects = {name for kind, entries in inventory.items() if kind.startswith("py:") for name in entries}
    # An exception that `testing` has too is documented once.
    assert [name for name in public_names() if name not in objects | {"dualbcast.testing.DerivativeError"}] == []
    hidden = [f"dualbcast.graph.Variable.{name}" for name in NOT_FOR_USERS[graph.Variable]]
    assert objects.isdisjoint(hidden)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_no_dead_link(tmp_path: Path) -> None:
    """The programs of the gallery run here."""
    pytest.importorskip("pydata_sphinx_theme")
    for library in ("jax", "scipy", "torch"):
        pytest.importorskip(library)
    repository = "https://example.org/repository"
    site = build(tmp_path, "-D", f"repository={repository}")
    check(site)
    targets = {target for page in site.rglob("*.html") for target in Links(page).targets}
    files = [target.partition("/blob/main/")[2] for target in targets if target.startswith(f"{repository}/blob/")]
    assert len(files) > 10
    assert [file for file in files if not (ROOT / file).exists()] == []
    pictures = {path.name for path in (site / "_images").glob("sphx_glr_*_thumb.png")}
    assert {f"sphx_glr_{name}_thumb.png" for name in PROGRAMS} <= pictures


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html#there"></a><a href="#here"></a></p>', encoding="utf-8"
    )
    (tmp_path / "b.html").write_text(
        '<a href="a.html#here"></a><a href="c.html"></a><img src="d.png">', encoding="utf-8"
    )
    assert sorted(dead_links(tmp_path)) == ["a.html: b.html#there", "b.html: c.html", "b.html: d.png"]


def test_links_to_files_lead_to_the_repository_if_its_address_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from site_extension import source_address

    path = ROOT / "docs" / "background" / ".." / ".." / "tests" / "test_site.py"
    assert source_address("https://example.org/r/", path) == "https://example.org/r/blob/main/tests/test_site.py"
    assert source_address("", path) == ""


def test_a_name_in_code_is_a_name_or_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from site_extension import name_in

    calls = {"f.jvp((x, y), (dx, dy))": "f.jvp", "derivative(g)(x)": "derivative", "np.sin": "np.sin", "J": "J"}
    assert {code: name_in(code) for code in calls} == calls
    assert [code for code in ("sign(a) * sign(b)", "x + y", "1.0", "f(x", "--cc", "J['x']") if name_in(code)] == []


def test_addresses_of_other_projects_are_in_files() -> None:
    """So a build asks no server. Each line of a file has a name, the kind of object, and the page."""
    for path in sorted((ROOT / "docs" / "inventories").glob("*.txt")):
        first, project, _, *lines = path.read_text(encoding="utf-8").splitlines()
        assert (first, project) == ("# Sphinx inventory version 1", f"# Project: {path.stem}")
        assert lines == sorted(lines)
        assert all(re.fullmatch(r"[\w.]+ (class|data|exception|function|method|mod) \S+\.html", line) for line in lines)
