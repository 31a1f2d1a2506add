"""Imports go one way through the package, and `import dualbcast` stays light."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dualbcast

ROOT = Path(dualbcast.__file__).parent

# Which layers a layer may import, besides itself. Modules that are not named here are the api layer.
LEAVES = {"errors", "foreign", "record", "abi", "structure", "arithmetic", "special"}
ALLOWED = {
    "errors": {"record"},
    "foreign": {"errors"},
    "record": set[str](),
    "abi": {"record"},
    "structure": {"errors", "record"},
    "arithmetic": set[str](),
    "special": {"arithmetic"},
    "compiler": LEAVES,
    "runtime": {"errors", "foreign", "record", "abi"},
    "api": LEAVES | {"compiler", "runtime"},
    "graph": LEAVES | {"api"},
    "interop": LEAVES | {"api", "graph"},
    "cli": LEAVES | {"api", "runtime", "graph", "interop"},
}
HEAVY = ["array_api_compat", "cupy", "click", "llvmlite", "matplotlib", "ml_dtypes", "numba", "rich", "scipy"]


def layer(module: str) -> str:
    """The layer of a dotted module name inside the package; the package itself is the api."""
    part = module.split(".")[1] if "." in module else ""
    return part if part in ALLOWED else "api"


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


def violations(text: str, module: str, is_package: bool, modules: set[str]) -> set[str]:
    own = layer(module)
    return {name for name in imported(text, module, is_package, modules) if layer(name) not in ALLOWED[own] | {own}}


MODULES = package()


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    path = MODULES[module]
    assert violations(path.read_text(encoding="utf-8"), module, path.name == "__init__.py", set(MODULES)) == set()


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("dualbcast.runtime.cpu", "from dualbcast.compiler import ir"),
        ("dualbcast.runtime.cpu", "def f():\n    from ..compiler.ir import Var"),
        ("dualbcast.runtime.cpu", "import dualbcast.api"),
        ("dualbcast.runtime.cpu", "from dualbcast import differentiable_broadcast"),
        ("dualbcast.runtime.cpu", "from .. import special"),
        ("dualbcast.compiler.emit", "from dualbcast.runtime.broadcast import plan"),
        ("dualbcast.errors", "from .abi import Layout"),
        ("dualbcast.api", "from dualbcast.cli import main"),
        ("dualbcast.cli.info", "from dualbcast.compiler import ir"),
    ],
)
def test_wrong_way_is_seen(module: str, text: str) -> None:
    assert violations(text, module, False, set(MODULES) | {module})


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("dualbcast.runtime.cpu", "from dualbcast import abi, errors\nimport numpy"),
        ("dualbcast.runtime.cpu", "from . import cache\nfrom ..errors import BackendError"),
        ("dualbcast.compiler.rules", "from dualbcast import special"),
        ("dualbcast.api", "from dualbcast.runtime import broadcast\nfrom dualbcast.compiler import ir"),
        ("dualbcast.cli.sweep", "from dualbcast import differentiable_broadcast"),
    ],
)
def test_right_way_is_allowed(module: str, text: str) -> None:
    assert violations(text, module, False, set(MODULES) | {module}) == set()


@pytest.mark.parametrize("module", ["dualbcast", "dualbcast.runtime.broadcast", "dualbcast.runtime.operands"])
def test_import_is_light(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(set({HEAVY}) & set(sys.modules))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == []


ON_THE_CPU = """
import sys
import numpy as np
from dualbcast import differentiable_broadcast, graph, special
from dualbcast.runtime import cpu

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
