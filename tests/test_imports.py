"""Imports go one way through the package, and `import dualbcast` stays light."""

from __future__ import annotations

import ast
import graphlib
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import dualbcast
import dualbcast.graph

ROOT = Path(dualbcast.__file__).parent

# The stages of a program, from the one that imports no other to the one that may import all.
STAGES = [
    "ir",
    "rules",
    "linalg",
    "frontend",
    "autodiff",
    "passes",
    "codegen",
    "runtime",
    "counting",
    "program",
    "api",
    "graph",
    "interop",
    "fit",
    "cli",
]
# Modules beside the stages: what every stage may import, and what imports like a user's code.
LEAVES = {
    "adapters",
    "complex_functions",
    "complex_numbers",
    "arithmetic",
    "disk_cache",
    "errors",
    "foreign_objects",
    "kernel_spec",
    "location",
    "progress",
    "random",
    "special",
    "tables",
    "tracebacks",
}
ABOVE = {"memory", "testing"}
# Imports that still go up, and circles that are still there. Both lists are to become empty.
STILL_UPWARD: set[tuple[str, str]] = set()
STILL_CIRCLES = 0
HEAVY = ["array_api_compat", "cupy", "click", "llvmlite", "matplotlib", "ml_dtypes", "numba", "rich", "scipy"]


def height(module: str) -> int:
    """How far up a module stands: a module may import what stands no higher."""
    part = module.split(".")[1] if "." in module else ""
    if part in LEAVES:
        return -1
    return STAGES.index(part) if part in STAGES else STAGES.index("interop")


def imported(text: str, module: str, is_package: bool, modules: set[str]) -> set[str]:
    """The package's own modules that `module`'s text imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parent = module.split(".") if is_package else module.split(".")[:-1]
            base = ".".join(parent[: len(parent) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, [base, node.module]))
            # `from dualbcast import abi` imports a module, `from dualbcast import f` a name of the package.
            names = {f"{source}.{alias.name}" for alias in node.names}
            found |= names & modules
            if names - modules:
                found.add(source)
    return {name for name in found if name.split(".")[0] == "dualbcast"}


def package() -> dict[str, Path]:
    """Every module of the package with its file."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["dualbcast", *path.relative_to(ROOT).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def upward(text: str, module: str, is_package: bool, modules: set[str]) -> set[str]:
    """What a module imports that stands higher than itself."""
    found = imported(text, module, is_package, modules)
    return {name for name in found if height(name) > height(module)}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Chains of imports that end where they begin, no two of which share a file."""
    left, found = dict(graph), []
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
            return found
        except graphlib.CycleError as error:
            chain = error.args[1]
            found.append(chain)
            left = {name: others - set(chain) for name, others in left.items() if name not in chain}


MODULES = package()
TEXTS = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}


@cache
def imports() -> dict[str, set[str]]:
    """The other modules of the package that each module imports."""
    return {
        module: imported(TEXTS[module], module, path.name == "__init__.py", set(MODULES)) & set(MODULES) - {module}
        for module, path in MODULES.items()
    }


def test_imports_go_down() -> None:
    found = {(module, name) for module, names in imports().items() for name in names if height(name) > height(module)}
    assert found == STILL_UPWARD


def test_no_circle_of_files() -> None:
    found = circles(imports())
    assert len(found) <= STILL_CIRCLES, "\n".join(" -> ".join(chain) for chain in found)


def test_the_graph_lists_its_files_in_the_order_of_their_imports() -> None:
    listing = (dualbcast.graph.__doc__ or "").partition("list:\n")[2]
    lines = enumerate(line[4:42].replace("/", ".").split() for line in listing.splitlines())
    height = {f"dualbcast.graph.{name}": number for number, names in lines for name in names}
    assert set(height) == {module for module in MODULES if module.startswith("dualbcast.graph.")}
    wrong = [(a, b) for a in height for b in imports()[a] & set(height) if height[b] >= height[a]]
    assert wrong == []


def test_the_package_does_not_import_its_benchmarks() -> None:
    benchmark = re.compile(r"^\s*(from|import) bench\b", re.MULTILINE)
    assert [module for module, text in TEXTS.items() if benchmark.search(text)] == []


def test_every_folder_says_what_comes_in_and_what_goes_out() -> None:
    for path in MODULES.values():
        if path.name == "__init__.py" and path.parent != ROOT:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            assert "Comes in: " in text, path
            assert "Goes out: " in text, path


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("dualbcast.runtime.cpu.kernel", "import dualbcast.api.function"),
        ("dualbcast.runtime.cpu.kernel", "def f():\n    from ...program.products import Product"),
        ("dualbcast.runtime.cpu.kernel", "from dualbcast import differentiable_broadcast"),
        ("dualbcast.codegen.kernel_text", "from dualbcast.runtime.launch_plan import plan"),
        ("dualbcast.errors", "from .ir.nodes import Var"),
        ("dualbcast.api.function", "from dualbcast.cli.app import group"),
        ("dualbcast.interop.scipy", "from dualbcast.fit import least_squares"),
        ("dualbcast.special", "from dualbcast.ir import nodes"),
    ],
)
def test_wrong_way_is_seen(module: str, text: str) -> None:
    assert upward(text, module, False, set(MODULES) | {module})


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("dualbcast.runtime.cpu.kernel", "from dualbcast import kernel_spec, errors\nimport numpy"),
        ("dualbcast.runtime.cpu.kernel", "from . import threads\nfrom ...errors import BackendError"),
        ("dualbcast.rules.table", "from dualbcast import special"),
        ("dualbcast.api.function", "from dualbcast.runtime import launch_plan\nfrom dualbcast.ir import nodes"),
        ("dualbcast.cli.sweep", "from dualbcast import differentiable_broadcast"),
    ],
)
def test_right_way_is_allowed(module: str, text: str) -> None:
    assert upward(text, module, False, set(MODULES) | {module}) == set()


@pytest.mark.parametrize(
    ("graph", "chains"),
    [
        ({"a": {"b"}, "b": set()}, 0),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, 0),
        ({"a": {"b"}, "b": {"a"}}, 1),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, 1),
        ({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c", "a"}}, 2),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], chains: int) -> None:
    assert len(circles(graph)) == chains


@pytest.mark.parametrize("module", ["dualbcast", "dualbcast.runtime.launch_plan", "dualbcast.runtime.arguments"])
def test_import_is_light(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(set({HEAVY}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == []


def test_only_public_names_are_shown() -> None:
    shown = dir(dualbcast)
    assert shown == sorted(dualbcast.__all__)
    assert all(hasattr(dualbcast, name) and not name.startswith("_") for name in shown)
    assert set(STAGES).isdisjoint(shown)


ON_THE_CPU = """
import sys
import numpy as np
from dualbcast import differentiable_broadcast, graph, special
from dualbcast.runtime.cpu import kernel as cpu

@differentiable_broadcast(backend="cpu")
def f(x, n, y):
    for _ in range(n):
        if x > y:
            x = special.sigmoid(x) * y
    return x

x = np.linspace(-1, 2, 7)
given = x, np.arange(7), np.float16(0.5)
f(*given)
f.value_and_jacobian(*given)
f.value_and_vjp(given, np.ones(7))
f.hessian(*given)
for product in ("asm", "llvm", "source"):
    assert getattr(f, f"inspect_{product}")(*given)
f.explain(*given)
graph.grad(lambda a: np.sum(f(a, 2, 0.5) * a))(x)
assert len(cpu._kernels) >= 4
print([name for name in sys.modules if name.startswith("numba")])
"""


def test_the_cpu_backend_does_not_import_numba(tmp_path: Path) -> None:
    """Neither to compile, nor to run what is in the cache."""
    (tmp_path / "program.py").write_text(ON_THE_CPU, encoding="utf-8")
    for _ in range(2):
        command = [sys.executable, str(tmp_path / "program.py")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "[]"


def test_public_methods_are_documented() -> None:
    """Each public method of a BroadcastFunction has a docstring, and stands in the README or in docs/."""
    root = Path(dualbcast.__file__).parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    words = set(re.findall(r"\w+", " ".join(page.read_text(encoding="utf-8") for page in pages)))
    for name, member in inspect.getmembers(dualbcast.BroadcastFunction):
        if not name.startswith("_"):
            assert inspect.getdoc(member), name
            assert name in words
