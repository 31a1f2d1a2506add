"""The command line: its tables, files and pictures, a user's own function, and how it ends when something is wrong."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from command_line import HAS_GPU, QUICK, body, colours, run

from dualbcast.cli import checking, measure, options, report
from dualbcast.cli.sweep import Sweep

pytestmark = pytest.mark.usefixtures("small_copy")


# --- sweep -------------------------------------------------------------------------------------------------------


def test_sweep_table() -> None:
    result = run("sweep", "--arity", "1:3", "--n", "32", "--backend", "cpu", *QUICK)
    for heading in ("arity", "time", "ns per", "moved", "GB/s", "copy", "+ - * /", "scend.", "error"):
        assert heading in result.stdout
    rows = body(result.stdout)
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert {len(row) for row in rows} == {9}
    assert [int(row[7]) for row in rows] == [1, 2, 3], "one tanh an argument"
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["arity 1", "arity 2", "arity 3"]


def test_sweep_files(tmp_path: Path) -> None:
    target, table = tmp_path / "sweep.json", tmp_path / "sweep.csv"
    options = ("--arity", "2,5", "--n", "16", "--backend", "cpu", *QUICK)
    shown = run("sweep", *options, "--json", target, "--csv", table).stdout.split()
    found = json.loads(target.read_text())
    assert found["command"] == "sweep"
    assert found["parameters"]["arity"] == [2, 5]
    assert found["parameters"]["n"] == 16
    assert found["machine"]["cpu"]
    assert found["versions"]["numpy"] == np.__version__
    assert found["date"].startswith("20")
    assert found["copy_bytes_per_second"] > 0
    for row, arity in zip(found["rows"], (2, 5), strict=True):
        assert row["arity"] == arity
        assert f"{1e3 * row['seconds']:.3f}" in shown, "the table has milliseconds"
        assert row["bytes"] == 4 * 16 * 16 * (2 * arity + 1), "each input read and each output written once"
        assert 0 <= row["error_ulp"] <= row["tolerance_ulp"] == 5 * (arity + 1)
        assert row["seconds_best"] <= row["seconds_lower_quartile"] <= row["seconds"] <= row["seconds_upper_quartile"]
        assert row["ns_per_element"] == pytest.approx(row["seconds"] * 1e9 / 256)
        assert row["copy_share"] == pytest.approx(row["bytes"] / row["seconds"] / found["copy_bytes_per_second"])
        assert row["arithmetic"] >= 3 * arity - 2
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["arity"] for row in rows] == ["2", "5"]
    assert [float(row["seconds"]) for row in rows] == [row["seconds"] for row in found["rows"]]
    assert list(tmp_path.iterdir()) == [target, table] or list(tmp_path.iterdir()) == [table, target], (
        "nothing left over"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_sweep_dtypes(dtype: str, tmp_path: Path) -> None:
    target = tmp_path / "sweep.json"
    run("sweep", "--arity", "3", "--n", "32", "--dtype", dtype, "--backend", "cpu", "--json", target, *QUICK)
    (row,) = json.loads(target.read_text())["rows"]
    assert row["bytes"] == {"float64": 8}.get(dtype, 2) * 32 * 32 * 7
    assert 0 < row["error_ulp"] <= row["tolerance_ulp"]


def test_sweep_python_backend() -> None:
    assert len(body(run("sweep", "--arity", "2", "--n", "4", "--backend", "python", *QUICK).stdout)) == 1


@pytest.mark.cuda_compilers
def test_sweep_for_compute_capabilities(tmp_path: Path) -> None:
    target = tmp_path / "sweep.json"
    arguments = ("--arity", "1,4", "--n", "16", "--cc", "9.0", "--cc", "8.6", "--backend", "cpu", "--json", target)
    result = run("sweep", *arguments, *QUICK)
    for heading in ("sm_90", "sm_86", "spill", "pancy"):
        assert heading in result.stdout
    cells = body(result.stdout)
    for row, shown in zip(json.loads(target.read_text())["rows"], cells, strict=True):
        # With so many registers 64 warps, or the 48 of an 8.6, can be there.
        for key, most in (("sm_90", 32), ("sm_86", 40)):
            assert 8 <= row[f"{key}_registers"] <= most
            assert row[f"{key}_spill_bytes"] == 0
            assert row[f"{key}_occupancy"] == 1.0
        assert shown[9:] == [str(row["sm_90_registers"]), "0", "100%", str(row["sm_86_registers"]), "0", "100%"]


@pytest.mark.cuda_compilers
def test_of_many_compute_capabilities_the_last_follow_in_a_table_of_their_own() -> None:
    arguments = [part for cc in ("8.0", "8.6", "8.9", "9.0", "10.0") for part in ("--cc", cc)]
    result = run("sweep", "--arity", "2", "--n", "8", "--backend", "cpu", *arguments, *QUICK)
    first, second = body(result.stdout)
    assert first[0] == second[0] == "2"
    assert len(first) + len(second) == 9 + 5 * 3 + 1, "the measured columns, three a capability, and the arity again"
    assert re.findall("sm_[0-9]+", result.stdout) == ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"]
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_without_numba_cuda_there_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    # A square, of which no other test has a kernel in memory.
    path = tmp_path / "square.py"
    path.write_text("def square(x):\n    return x * x + 0.123\n")
    name = f"{path}:square"
    result = run("sweep", "--arity", "1", "--n", "8", "--function", name, "--cc", "9.0", "--backend", "cpu", *QUICK)
    assert 'pip install "dualbcast[cuda' in result.stdout
    assert body(result.stdout)[0][-3:] == ["-", "-", "-"]


FUNCTIONS = """
from math import exp, sin

from dualbcast import differentiable_broadcast


def plain(*xs):
    y = 0.0
    for x in xs:
        y = y + sin(x) * exp(-x * x)
    return y


@differentiable_broadcast
def decorated(*xs):
    return plain(*xs)


def two(*xs):
    total = sum(xs)
    return total * total, (xs[0] if total > 0 else -xs[0])


def bad(*xs):
    return {x for x in xs}
"""


@pytest.mark.parametrize("name", ["plain", "decorated", "two"])
def test_sweep_of_a_users_function(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    target = tmp_path / "sweep.json"
    arguments = ("--function", f"{tmp_path / 'mine.py'}:{name}", "--arity", "1:2", "--n", "8", "--backend", "cpu")
    result = run("sweep", *arguments, "--json", target, *QUICK)
    assert result.stdout.startswith(f"{name}: value and all partials")
    assert "central differences" in result.stdout
    for row in json.loads(target.read_text())["rows"]:
        outputs = 2 if name == "two" else 1
        assert row["compared"] + row["skipped"] == 32 * outputs * (1 + row["arity"])
        assert row["compared"] > row["skipped"]
        assert row["error_relative"] < 1e-3


def test_a_function_of_an_importable_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importable_functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    function = options.function_name("importable_functions:plain")
    assert function(0.0, 0.0) == 0.0


# --- the references, and that a wrong result does not pass ---------------------------------------------------------


def test_product_reference_against_differences() -> None:
    generator = np.random.default_rng(1)
    xs = [generator.uniform(-2, 2, 50) for _ in range(4)]
    value, partials, others = checking.product_reference(xs)
    np.testing.assert_allclose(value, [checking.product(*point) for point in zip(*xs, strict=True)], rtol=1e-14)
    for j, (partial, other) in enumerate(zip(partials, others, strict=True)):
        up, down = ([*xs[:j], xs[j] + step, *xs[j + 1 :]] for step in (1e-6, -1e-6))
        slope = (checking.product_reference(up)[0] - checking.product_reference(down)[0]) / 2e-6
        np.testing.assert_allclose(partial, slope, rtol=1e-7, atol=1e-10)
        assert (np.abs(partial) <= other).all()


@pytest.mark.parametrize("wrong", ["value", "partial", "nan"])
def test_a_wrong_product_is_found(wrong: str) -> None:
    device = measure.HostDevice()
    xs = [np.random.default_rng(j).uniform(-2, 2, (8, 8)).astype(np.float32) for j in range(3)]
    exact, partials, _ = checking.product_reference([x.astype(float) for x in xs])
    value, jacobian = exact.astype(np.float32), [partial.astype(np.float32) for partial in partials]
    error, tolerance = checking.check_product(device, xs, value, jacobian)
    assert error <= 1
    assert tolerance == 20
    if wrong == "value":
        value[3, 4] *= np.float32(1 + 30 * 2.0**-23)
    elif wrong == "partial":
        jacobian[2] = -jacobian[2]
    else:
        jacobian[1][7, 7] = np.nan
    with pytest.raises(checking.CheckError, match="value" if wrong == "value" else "partial in argument"):
        checking.check_product(device, xs, value, jacobian)


def test_differences_find_a_wrong_partial_and_leave_out_kinks() -> None:
    device = measure.HostDevice()
    x = np.linspace(-1, 1, 64).reshape(8, 8)
    found = checking.check_by_differences(np.abs, device, [x], np.abs(x), [np.sign(x)])
    assert found["compared"] > 40
    with pytest.raises(checking.CheckError, match="the partial of output 0 in argument 0"):
        checking.check_by_differences(np.abs, device, [x], np.abs(x), [np.ones_like(x)])
    zero = np.zeros((8, 8))
    assert checking.check_by_differences(np.abs, device, [zero], zero, [zero + 5])["skipped"] == 32, "all at the kink"


def test_finfo_of_bfloat16_is_the_small_types() -> None:
    exact = np.ones((2, 2))
    off = (exact + 2.0**-7).astype(ml_dtypes.bfloat16)
    assert checking.judge("it", off, exact, exact, 2.0) == pytest.approx(1)


# --- pictures ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sweep_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    small, large = tmp_path / "plain.png", tmp_path / "cuda.png"
    run("sweep", "--arity", "1:3", "--n", "16", "--backend", "cpu", "--plot", small, *QUICK)
    assert colours(small) > 20
    rows = [
        {
            "arity": arity,
            "bytes": 1000 * arity,
            "seconds": 1e-6 * arity,
            "seconds_lower_quartile": 0.9e-6 * arity,
            "seconds_upper_quartile": 1.2e-6 * arity,
            "ns_per_element": 1.0 * arity,
            "copy_share": 0.5,
            "sm_90_registers": 16 * arity,
            "sm_90_spill_bytes": 8 * (arity == 3),
            "sm_90_occupancy": 1 / arity,
        }
        for arity in (1, 2, 3)
    ]
    settings = {"function": None, "exact": None, "name": "A title", "n": 32, "dtype": "float32", "arities": (1, 2, 3)}
    drawn = Sweep(device=measure.HostDevice(), **settings, capabilities=[(9, 0)], bandwidth=1e9)
    drawn.rows = rows
    drawn.plot(large)
    assert colours(large) > colours(small), "two more panels"


def test_plot_without_matplotlib_fails_before_measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("sweep", "--plot", tmp_path / "plot.png", status=1)
    assert 'pip install "dualbcast[plot]"' in result.stderr
    assert result.stdout == ""


# --- info, help, errors ------------------------------------------------------------------------------------------


def test_info(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    from dualbcast import disk_cache

    disk_cache.fetch("0" * 64, lambda: b"payload")
    text = run("info").stdout
    words = (
        "python",
        "numpy",
        "numba",
        "llvmlite",
        "processor",
        "threads",
        "fused multiply-add",
        "GPU",
        "kernel cache",
    )
    for word in words:
        assert word in text
    assert str(tmp_path / "cache") in text.replace("\n", "")
    assert not re.search(r"\b0 entries", text)


def test_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(folder))
    from dualbcast import disk_cache

    for number in "012":
        disk_cache.fetch(number * 64, lambda: b"p" * 949)
        os.utime(folder / "kernels" / f"{number * 64}.bin", (int(number), int(number)))
    size = disk_cache.info().bytes // 3
    assert run("cache", "info").stdout.splitlines() == [str(folder), "3 entries, 3 KiB (limit 1.0 GiB)"]
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", str(2 * size))
    text = run("cache", "prune").stdout.splitlines()
    assert text == [f"1 files deleted, {size} B", str(folder), "2 entries, 2 KiB (limit 2 KiB)"]
    assert run("cache", "prune", "--limit", f"{size}").stdout.startswith("1 files deleted")
    assert [path.name for path in (folder / "kernels").iterdir()] == ["2" * 64 + ".bin"]
    assert run("cache", "clear").stdout.splitlines()[1] == "0 entries, 0 B (limit 2 KiB)"
    assert disk_cache.info().entries == 0
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", "unlimited")
    assert run("cache", "info").stdout.splitlines()[1] == "0 entries, 0 B (no limit)"
    assert "Give one with --limit" in run("cache", "prune", status=2).output


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "2 KiB"), (5 << 20, "5 MiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert report.size_text(count) == text


@pytest.mark.parametrize("command", [(), ("sweep",), ("cache",), ("cache", "prune"), ("info",)])
def test_help(command: tuple[str, ...]) -> None:
    text = run(*command, "--help").stdout
    assert text.startswith("Usage: dualbcast")
    words = {
        (): ["sweep", "info", "cache"],
        ("cache",): ["info", "clear", "prune", "DUALBCAST_CACHE_LIMIT"],
        ("cache", "prune"): ["--limit"],
        ("info",): ["where the cache"],
        ("sweep",): ["--arity", "--cc", "--function", "--n", "--json", "--csv", "--plot", "--backend"],
    }
    for word in words[command]:
        assert word in text


def test_version() -> None:
    from importlib.metadata import version

    assert version("dualbcast") in run("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "--arity", "0"), "must be positive"),
        (("sweep", "--arity", "5:2"), "the smaller number first"),
        (("sweep", "--arity", "many"), "neither a number nor A:B"),
        (("cache", "prune", "--limit", "much"), "'much' is no size"),
        (("cache", "prune", "--limit", "unlimited"), "Give a number of bytes"),
        (("sweep", "--cc", "nine"), "not a compute capability such as 9.0"),
        (("sweep", "--function", "product"), "is not MODULE:NAME"),
        (("sweep", "--function", "no_such_module:f"), "ModuleNotFoundError"),
        (("sweep", "--function", "math:no_such_function"), "has no function 'no_such_function'"),
        (("sweep", "--function", "missing.py:f"), "there is no file missing.py"),
        (("sweep", "--json", "no/such/folder/x.json"), "There is no folder"),
        (("sweep", "--plot", "x.txt"), "must end in .png, .svg, .pdf"),
        (("sweep", "--dtype", "complex64"), "complex64"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments, status=2)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert message in line
    assert result.stdout == ""


def test_a_function_that_cannot_be_compiled_is_shown_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FUNCTIONS)
    result = run("sweep", "--function", f"{path}:bad", "--arity", "2", "--n", "4", "--backend", "cpu", status=1)
    line = FUNCTIONS.splitlines().index("    return {x for x in xs}") + 1
    assert f"Error: {path}:{line}:" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_cuda_backend_without_a_gpu() -> None:
    result = run("sweep", "--backend", "cuda", "--arity", "1", status=1)
    assert result.stderr.startswith("Error: The cuda backend cannot run here. ")


def test_the_command_itself() -> None:
    """As a user runs it: another process, a message and a status, no traceback."""
    code = "import sys; from dualbcast.cli.app import group; sys.argv[0] = 'dualbcast'; group()"
    command = [sys.executable, "-c", code, "sweep", "--arity", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: Invalid value for '--arity'")


# --- files are written whole or not at all -----------------------------------------------------------------------


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    report.write_json(path, {"rows": [1]})
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        report.write_json(path, {"rows": [2]})
    assert json.loads(path.read_text()) == {"rows": [1]}
    assert list(tmp_path.iterdir()) == [path]


def test_not_a_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        report.write_json(tmp_path / "result.json", {"seconds": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU, or no CuPy to reach it")
def test_the_sweep_on_a_gpu(tmp_path: Path) -> None:
    target = tmp_path / "sweep.json"
    run("sweep", "--arity", "1,3", "--n", "256", "--backend", "cuda", "--json", target, *QUICK)
    found = json.loads(target.read_text())
    assert found["backend"] == "cuda"
    assert found["device"] == found["machine"]["gpus"][0]["name"]
    assert all(row["seconds"] > 0 for row in found["rows"])
