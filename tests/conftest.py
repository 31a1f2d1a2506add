"""What the whole test run shares: a kernel cache of its own, the options, and which tests are left out and why."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CACHE = pytest.StashKey[str]()
# The libraries that modules of `interop/` import.
ADAPTED = ("jax", "pandas", "torch", "xarray")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files and the page of counts")
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--emulated-gpu", action="store_true", help="run GPU tests without one; see testing.md")
    parser.addoption("--kernels", metavar="FOLDER", help="keep compiled kernels there, from run to run")
    parser.addoption("--fuzz", type=int, metavar="N", help="run N random programs; see testing.md")
    parser.addoption("--fuzz-seed", type=int, default=0, metavar="SEED", help="the first program's seed")
    parser.addoption("--fuzz-python", action="store_true", help="random programs on the python backend only: fast")
    parser.addoption(
        "--fuzz-with",
        default="",
        metavar="NAMES",
        help="features of tests/fuzz/grammar.py to add to the programs, or all",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Collecting the tests makes millions of objects, of which few are garbage, and JAX adds work of its own to each run
    # of the garbage collector.
    gc.set_threshold(20_000, 10, 10)
    # Not a fixture: the doctests of the package, which lie outside this folder, must not fill the user's cache either.
    # Workers of pytest-xdist inherit the environment, so that a kernel is compiled once for all of them.
    if kernels := config.getoption("--kernels"):
        os.environ["DUALBCAST_CACHE_DIR"] = kernels
    elif not hasattr(config, "workerinput"):
        config.stash[CACHE] = tempfile.mkdtemp(prefix="dualbcast-tests-")
        os.environ["DUALBCAST_CACHE_DIR"] = config.stash[CACHE]
    # Adapters import their libraries. Where one is not installed, the doctests of its files are left out.
    if any(importlib.util.find_spec(library) is None for library in ADAPTED):
        config.option.doctest_ignore_import_errors = True
    if config.getoption("--emulated-gpu"):
        import emulated_gpu

        if reason := emulated_gpu.why_not():
            raise pytest.UsageError(reason)
        emulated_gpu.install(Path(os.environ["DUALBCAST_CACHE_DIR"]))


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow") and "slow" not in config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if not item.get_closest_marker("slow")]
    for item in items:
        if item.nodeid.startswith("dualbcast/counting/counted_launch.py"):
            item.add_marker(pytest.mark.cuda_compilers)
        # The examples of a library's module need the library.
        if item.nodeid.startswith("dualbcast/interop/") and importlib.util.find_spec(item.path.stem) is None:
            item.add_marker(pytest.mark.skip(reason=f"{item.path.stem} is not installed"))
    compiled = [item for item in items if item.get_closest_marker("cuda_compilers")]
    if compiled and (missing := missing_cuda_compilers()):
        skip = pytest.mark.skip(reason=f"no CUDA compilers: {missing}; pip install -e '.[dev-cuda]'")
        for item in compiled:
            item.add_marker(skip)
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        from dualbcast.runtime.cuda import launch as cuda_launch

        if not cuda_launch.available():
            skip = pytest.mark.skip(reason=f"no GPU: {cuda_launch.why_not()}")
            for item in gpu:
                item.add_marker(skip)


def missing_cuda_compilers() -> str:
    """Which of the packages are missing by which kernels are compiled for a GPU, and their machine code is read."""
    from dualbcast.errors import MissingDependencyError
    from dualbcast.runtime.cuda import kernel as cuda_kernel

    missing = []
    for package, module in (("numba-cuda", "numba_cuda"), ("cuda-core", "cuda.core")):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # of the package around it
            found = None
        if found is None:
            missing.append(package)
    if not missing:
        try:
            cuda_kernel.disassembler()
        except MissingDependencyError:
            missing.append("nvidia-cuda-nvdisasm")
    return ", ".join(missing)


@pytest.fixture(scope="module", autouse=True)
def no_old_objects_to_collect() -> None:
    """Late in a run a collection would look at the objects of all tests, which takes most of a second each time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def jax_as_installed() -> Iterator[None]:
    """A test that asks JAX for float64 asks for itself only."""
    yield
    if (jax := sys.modules.get("jax")) is not None and hasattr(jax, "config"):
        jax.config.update("jax_enable_x64", False)


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that change the compiler: all that it makes is made anew, and none is left for others."""
    monkeypatch.setattr("dualbcast.program.products.identity", lambda _: "")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line on all random programs, from whichever processes ran them."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    tallies = [(value, report) for report in reports for name, value in report.user_properties if name == "fuzz"]
    if tallies:
        total: Counter[str] = Counter()
        for tally, _ in tallies:
            total.update(tally)
        seconds = max(report.stop for _, report in tallies) - min(report.start for _, report in tallies)
        skipped = {name.removeprefix("skipped: "): total[name] for name in total if name.startswith("skipped: ")}
        terminalreporter.write_line(
            f"fuzz: {total['programs']:,} programs, {total['points']:,} points, {total['slopes']:,} derivatives "
            f"that are not zero, {total['differenced']:,} programs against finite differences too, {seconds:,.0f} s; "
            f"{sum(skipped.values()) / max(total['points'], 1):.1%} of the points skipped "
            f"({', '.join(f'{name}: {count:,}' for name, count in sorted(skipped.items())) or 'none'})"
        )


@pytest.fixture
def small_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bandwidth is measured for real, but on little memory: here it is only a number to divide by."""
    from dualbcast.cli import measure

    monkeypatch.setattr(measure, "_COPY_BYTES", 1 << 20)
    monkeypatch.setattr(measure, "last_level_cache", lambda: 1 << 20)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may get as far as a compiler of kernels."""
    from dualbcast.runtime.cpu import kernel as cpu_kernel

    def reached(*_: Any) -> None:
        pytest.fail("an erroneous function reached the backend")

    monkeypatch.setattr(cpu_kernel, "compile_program", reached)
