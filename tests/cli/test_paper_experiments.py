"""The paper's experiments: results, counted bytes, and that they run to the end; on a stand-in for a GPU too."""

from __future__ import annotations

import csv
import doctest
import functools
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from command_line import HAS_GPU, QUICK, body, colours
from command_line import run as run_command
from fake_cupy import FakeCuPy, cupy  # noqa: F401  # a fixture

from bench.paper import (
    by_hand,
    checking,
    divergence,
    hmlstm,
    implementation,
    implementations,
    models,
    peers,
    profiling,
    traffic,
)
from bench.paper import sweep as paper_sweep
from bench.paper.__main__ import group
from bench.paper.reverse import ReverseCell
from dualbcast import differentiable_broadcast
from dualbcast.cli import measure, sweep
from dualbcast.cli.checking import CheckError

run = functools.partial(run_command, commands=group)
BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def small_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_COPY_BYTES", 1 << 20)
    monkeypatch.setattr(measure, "last_level_cache", lambda: 1 << 18)


def arrays_for(n: int, control: str = "rows", seed: int = 0) -> list[Any]:
    """c, f, i, g, z, zb, and a cotangent; all cases occur."""
    generator = np.random.default_rng(seed)
    gates = [generator.normal(0, 1.5, (n, n)).astype(np.float32) for _ in range(5)]
    shape = {"rows": (n, 1), "columns": (1, n), "elements": (n, n)}[control]
    z, zb = (generator.integers(0, 2, shape).astype(np.float32) for _ in range(2))
    return [*gates[:4], z, zb, gates[4]]


def complex_step(arguments: list[Any]) -> tuple[Any, list[Any]]:
    """The update and its partials in c, f, i, g: the imaginary part along each, case by case with `where`."""

    def update(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        fresh = np.tanh(g) / (1 + np.exp(-i))
        return np.where(z == 1, fresh, np.where(zb == 0, c, c / (1 + np.exp(-f)) + fresh))

    exact = [np.asarray(argument, np.float64) for argument in arguments[:6]]
    partials = []
    for at in range(4):
        moved = [one + 1e-30j if k == at else one for k, one in enumerate(exact)]
        partials.append(update(*moved).imag / 1e-30)
    return update(*exact), partials


# --- implementations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", ["rows", "columns", "elements"])
@pytest.mark.parametrize("mode", implementation.MODES)
def test_every_implementation_is_right(mode: Any, control: str) -> None:
    arrays = arrays_for(33, control)
    value, partials = complex_step(arrays)
    given = arrays[:6] if mode == "derivatives" else arrays
    expected = partials if mode == "derivatives" else [value, *(arrays[6] * partial for partial in partials)]
    device = measure.HostDevice()
    found = implementations.implementations(device, mode, 33, (arrays[4], arrays[5]), peers=False)
    assert [which.name for which in found] == ["fused forward mode", "reverse, XLA's kernels", "NumPy by hand"]
    for which in found:
        for result, exact in zip(which.prepare(given)(), expected, strict=True):
            np.testing.assert_allclose(result, np.broadcast_to(exact, (33, 33)), rtol=3e-6, atol=3e-6)


def test_the_masks_are_the_same_function() -> None:
    arrays = arrays_for(17, "elements")[:6]
    value, partials = complex_step(arrays)
    function: Any = differentiable_broadcast(models.cell_update_by_masks)
    found, jacobian = function.value_and_jacobian(*arrays, wrt=("c", "f", "i", "g"))
    np.testing.assert_allclose(found, value, rtol=1e-6, atol=1e-6)
    for name, exact in zip("cfig", partials, strict=True):
        np.testing.assert_allclose(jacobian[name], exact, rtol=3e-6, atol=1e-6)


def test_the_papers_kernels_and_the_bytes_they_move() -> None:
    # Three that read one array and write one; ∇g and ∇i read two, ∇f two, ∇c one, and write one: 6 + 11 arrays.
    cell = ReverseCell("cpu", pulled=False)
    assert (cell.launches, cell.moved(100, 1)) == (7, 100 * (3 * 2 + 3 + 3 + 3 + 2) + 4 * 2)
    # With the value, which reads four; and a cotangent for each of the four.
    cell = ReverseCell("cpu", pulled=True)
    assert (cell.launches, cell.moved(100, 1)) == (8, 100 * (3 * 2 + 5 + 4 + 4 + 4 + 3) + 5 * 2)


@pytest.mark.slow
@pytest.mark.cuda_compilers
@pytest.mark.parametrize("pulled", [False, True])
def test_kernels_with_selects_read_everything(pulled: bool) -> None:
    # A load that a predicate guards, or that stands after a branch, would be left out for some elements.
    compiled = list(ReverseCell("auto", pulled).compiled(arrays_for(64), (9, 0)))[3:]
    assert len(compiled) == 4 + pulled
    for kernel in compiled:
        code = [line for line in kernel.sass().splitlines() if re.search(r"\b(LDG|BRA|EXIT)\b", line)]
        loads = [line for line in code if "LDG" in line]
        assert not [line for line in loads if "@" in line], kernel.entry
        # One exit for threads outside, one at the end, and the endless loop behind it.
        assert [line for line in code if "BRA" in line] == code[-1:], kernel.entry


@pytest.mark.parametrize("mode", implementation.MODES)
def test_bytes_that_are_needed_by_counting(mode: Any) -> None:
    n, per_unit = 40, 8
    reads = {
        "derivatives": {"flush": "ig", "copy": "", "update": "cfig"},
        "value and pullback": {"flush": "ig", "copy": "c", "update": "cfig"},
    }[mode]
    outputs = 4 if mode == "derivatives" else 6
    for control in ("columns", "elements"):
        z, zb = traffic.control_values(np.random.default_rng(3), n, control, "random")
        wide_z, wide_zb = np.broadcast_to(z, (n, n)), np.broadcast_to(zb, (n, n))
        touched = set()
        for row in range(n):
            for column in range(n):
                case = "flush" if wide_z[row, column] == 1 else "copy" if wide_zb[row, column] == 0 else "update"
                touched |= {(name, row, column // per_unit) for name in reads[case]}
                if case != "flush":  # zb is read in a branch; its rows have whole units
                    touched.add(("zb", row if control == "elements" else 0, column // per_unit))
        expected = 4 * (per_unit * len(touched) + outputs * n * n + z.size)
        assert traffic.bytes_needed(z, zb, n, mode, 4 * per_unit) == expected
    z, zb = traffic.control_values(np.random.default_rng(3), n, "rows", "random")
    cases = ["flush" if a == 1 else "copy" if b == 0 else "update" for a, b in zip(z[:, 0], zb[:, 0], strict=True)]
    wanted = {row // per_unit for row, case in enumerate(cases) if case != "flush"}
    expected = 4 * (n * sum(len(reads[case]) for case in cases) + outputs * n * n + n + per_unit * len(wanted))
    assert traffic.bytes_needed(z, zb, n, mode, 32) == expected


def test_a_last_unit_that_is_not_whole_is_counted_as_it_is() -> None:
    z, zb = (np.full((1, 10), value, np.float32) for value in (0, 1))
    assert traffic.bytes_needed(z, zb, 10, "derivatives", 32) == 4 * (8 * 100 + 20)


def test_runs_of_control_are_uniform_within_and_random_between() -> None:
    z, zb = traffic.control_values(np.random.default_rng(0), 1000, "elements", "random", run=128)
    assert z.shape == zb.shape == (1000, 1000)
    for values in (z, zb):
        for start in range(0, 1000, 128):
            part = values[:, start : start + 128]
            assert (part == part[:, :1]).all()
        assert 0.45 < values.mean() < 0.55
        assert (values[:, 0] != values[:, 128]).any()


@pytest.mark.parametrize(("n", "run"), [(512, 128), (2048, 128), (64, 1)])
def test_random_control_has_exact_shares_of_the_cases(n: int, run: int) -> None:
    orders = set()
    for seed in range(8):
        z, zb = traffic.control_values(np.random.default_rng(seed), n, "columns", "random", run)
        cases = [(z == 1).sum(), ((z == 0) & (zb == 0)).sum(), ((z == 0) & (zb == 1)).sum()]
        assert cases == [n // 2, n // 4, n // 4]
        orders.add((z + 2 * zb).tobytes())
    assert len(orders) > 4


def test_control_with_fewer_values_than_cases_is_random() -> None:
    drawn = {
        tuple(part.item() for part in traffic.control_values(np.random.default_rng(seed), 1, "rows", "random"))
        for seed in range(40)
    }
    assert len(drawn) == 4


# --- checks --------------------------------------------------------------------------------------------------------


def test_cell_update_reference_against_differences() -> None:
    generator = np.random.default_rng(2)
    gates = [generator.normal(size=60) for _ in range(4)]
    z, zb = (generator.integers(0, 2, 60).astype(float) for _ in range(2))
    value, partials = models.cell_update_reference(*gates, z, zb)
    scalar = [models.cell_update(*point) for point in zip(*gates, z, zb, strict=True)]
    np.testing.assert_allclose(value, scalar, rtol=1e-14)
    by_hand = models.cell_update_by_hand(np, *gates, z, zb)
    for j, partial in enumerate(partials):
        up, down = ([*gates[:j], gates[j] + step, *gates[j + 1 :]] for step in (1e-6, -1e-6))
        slope = (models.cell_update_reference(*up, z, zb)[0] - models.cell_update_reference(*down, z, zb)[0]) / 2e-6
        np.testing.assert_allclose(partial, slope, atol=1e-9)
        np.testing.assert_allclose(by_hand[1][j], partial, atol=1e-14)


@pytest.mark.parametrize("wrong", ["sign", "nan", "digit"])
def test_a_wrong_cotangent_is_found(wrong: str) -> None:
    arrays = arrays_for(24)
    value, partials = complex_step(arrays)
    results = [value, *(arrays[6] * partial for partial in partials)]
    results = [np.asarray(np.broadcast_to(result, (24, 24)), np.float32).copy() for result in results]
    reference = checking.CellReference(arrays[:6], arrays[6])
    assert reference.elements == 24 * 24
    assert reference.check(results, np.asarray, 4.0, "someone") <= 1
    if wrong == "sign":
        results[4] = -results[4]
    elif wrong == "nan":
        results[4][23, 23] = np.nan
    else:
        results[4][5, 5] += np.float32(2.0**-18)
    with pytest.raises(CheckError, match=r"the cotangent of g \(someone\)"):
        reference.check(results, np.asarray, 4.0, "someone")


def test_of_large_arrays_the_first_and_the_last_rows_are_compared() -> None:
    blocks = [slice(k, k + 1) for k in range(100)]
    some = checking._spread(blocks, 16)
    assert (len(some), some[0], some[-1]) == (16, blocks[0], blocks[-1])
    assert checking._spread(blocks[:3], 16) == blocks[:3]


@pytest.mark.parametrize("command", ["hmlstm", "divergence"])
def test_a_wrong_result_ends_with_status_1(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any) -> Any:
        value, partials = models.cell_update_reference(*arguments)
        return value, [*partials[:3], 2 * partials[3]]

    monkeypatch.setattr(checking, "cell_update_reference", wrong)
    result = run(command, "--n", "16", "--backend", "cpu", *QUICK, status=1)
    who = {"hmlstm": "fused forward mode", "divergence": "by branches"}[command]
    pattern = rf"Error: Wrong result: ∂/∂g \({who}\) is off by .* ulp of its scale, more than 4\."
    assert re.fullmatch(pattern, result.stderr.splitlines()[-1])


def test_launches_of_a_program_of_xla() -> None:
    found = doctest.testmod(peers)
    assert found.attempted
    assert not found.failed


# --- the commands --------------------------------------------------------------------------------------------------


def test_hmlstm_table(tmp_path: Path) -> None:
    target, table = tmp_path / "cell.json", tmp_path / "cell.csv"
    result = run("hmlstm", "--n", "16,40", "--backend", "cpu", "--json", target, "--csv", table, *QUICK)
    for heading in ("error", "time", "moved", "GB/s", "copy", "NumPy by hand", "laun", "speed", "as in the paper"):
        assert heading in result.stdout
    assert [row[0] for row in body(result.stdout)] == 2 * (3 * ["16"] + 3 * ["40"])
    assert max(map(len, result.stdout.splitlines())) <= 120
    found = json.loads(target.read_text())
    with table.open(newline="") as lines:
        assert [float(row["seconds"]) for row in csv.DictReader(lines)] == [row["seconds"] for row in found["rows"]]


@pytest.mark.parametrize(("pattern", "reads", "pulled"), [("flush", 2, 2), ("copy", 0, 1), ("update", 4, 4)])
@pytest.mark.parametrize("control", ["rows", "columns", "elements"])
def test_hmlstm_controls(control: str, pattern: str, reads: int, pulled: int, tmp_path: Path) -> None:
    target = tmp_path / "cell.json"
    options = ("--control", control, "--pattern", pattern, "--backend", "cpu", "--json", target)
    run("hmlstm", "--n", "24", *options, *QUICK)
    derivatives, training = (r for r in json.loads(target.read_text())["rows"] if r["implementation"][:5] == "fused")
    controls = (1 + (pattern != "flush")) * (24 * 24 if control == "elements" else 24)  # zb is read where z is 0
    assert derivatives["bytes"] == 4 * (24 * 24 * (reads + 4) + controls)
    assert training["bytes"] == 4 * (24 * 24 * (pulled + 6) + controls)
    assert derivatives["error_ulp"] <= 4
    if pattern == "copy":
        assert derivatives["error_ulp"] == 0, "a copy is exact"


@pytest.mark.parametrize("suffix", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("png", "pdf")), "svg"])
def test_hmlstm_plot(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"cell.{suffix}"
    run("hmlstm", "--n", "8,16", "--backend", "cpu", "--plot", path, *QUICK)
    if suffix == "png":
        assert colours(path) > 20
    else:
        assert path.read_bytes().startswith(b"<?xml" if suffix == "svg" else b"%PDF")


@pytest.mark.parametrize("control", ["rows", "columns", "elements"])
def test_hmlstm_rows(control: str, tmp_path: Path) -> None:
    target = tmp_path / "cell.json"
    result = run("hmlstm", "--n", "24,40", "--control", control, "--backend", "cpu", "--json", target, *QUICK)
    found = json.loads(target.read_text())
    assert found["commit"] == "" or len(found["commit"].rstrip("+")) == 40
    assert set(found["driver"]) == {"release", "cuda"}
    assert found["host_seconds_per_call"] > 0
    names = ["fused forward mode", "reverse, XLA's kernels", "NumPy by hand"]
    assert [(row["n"], row["mode"], row["implementation"]) for row in found["rows"]] == [
        (n, mode, name) for n in (24, 40) for mode in implementation.MODES for name in names
    ]
    for row in found["rows"]:
        assert 0 < row["error_ulp"] <= 16
        assert row["compared"] == row["n"] ** 2
        assert row["timed_by"] == "wall clock"
        assert row["launches"] == {"fused": 1, "reverse": 7 + (row["mode"] != "derivatives")}.get(
            row["implementation"].split()[0].rstrip(",")
        )
        own = [r for r in found["rows"] if (r["n"], r["mode"]) == (row["n"], row["mode"])]
        assert row["speedup"] == pytest.approx(own[1]["seconds"] / row["seconds"])
        if row["bytes"] is None:
            assert row["copy_share"] is None
        else:
            share = row["bytes"] / row["seconds"] / found["copy_bytes_per_second"]
            assert row["copy_share"] == pytest.approx(share)
    assert len(body(result.stdout)) == 12


def test_divergence_rows(tmp_path: Path) -> None:
    target, picture = tmp_path / "divergence.json", tmp_path / "divergence.png"
    result = run("divergence", "--n", "256", "--backend", "cpu", "--json", target, "--plot", picture, *QUICK)
    found = json.loads(target.read_text())
    rows = {(row["control"], row["pattern"]): row for row in found["rows"]}
    assert list(rows) == [
        ("rows", "random"),
        ("columns", "uniform"),
        ("columns", "random"),
        ("elements", "uniform"),
        ("elements", "random"),
    ]
    for (control, pattern), row in rows.items():
        assert 0 < row["error_ulp"] <= 4
        assert row["masks_ratio"] == pytest.approx(row["masks_seconds"] / row["seconds"])
        assert (row["overhead"] is None) == (pattern == "uniform" or control == "rows")
        assert 0 <= row["saved"] < 0.5
    random, uniform = rows["elements", "random"], rows["elements", "uniform"]
    assert random["overhead"] == pytest.approx(random["seconds"] / uniform["seconds"] - 1)
    speeds = [row["bytes"] / row["seconds"] for row in (uniform, random)]
    assert random["overhead_by_bytes"] == pytest.approx(speeds[0] / speeds[1] - 1)
    # c and f are read for a quarter of the elements, i and g for three quarters, zb for half; z and all partials whole.
    assert uniform["saved"] == pytest.approx(1 - (2 + 1.5 + 4) / (4 + 2 + 4))
    assert random["saved"] < 0.01, "some element of every line needs it"
    assert "by masks" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert colours(picture) > 10


def test_peers_that_are_absent_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in peers.NAMES:
        monkeypatch.setitem(sys.modules, name, None)
    target = tmp_path / "cell.json"
    run("hmlstm", "--n", "8", "--peers", "--backend", "cpu", "--json", target, *QUICK)
    found = json.loads(target.read_text())
    assert found["peers"] == {}
    assert len(found["rows"]) == 6


def test_peers_that_fail_are_left_out_and_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def late(*_: Any) -> list[implementation.Implementation]:
        def prepare(_: Any) -> Any:
            return lambda: (_ for _ in ()).throw(MemoryError("no more"))

        return [implementation.Implementation("XLA", prepare, 1, lambda: 1, 64.0, None, np.asarray)]

    for name in peers.NAMES:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("torch", "jax"):
        module = ModuleType(name)
        module.__version__ = "0"
        monkeypatch.setitem(sys.modules, name, module)  # torch has nothing that it needs
    monkeypatch.setattr(peers, "_jax", late)
    target = tmp_path / "cell.json"
    result = run("hmlstm", "--n", "8,16", "--peers", "--backend", "cpu", "--json", target, *QUICK)
    found = json.loads(target.read_text())
    assert len(found["rows"]) == 12
    torch, jax = found["left_out"]
    assert torch.startswith("Left out: torch: AttributeError: ")
    assert jax == "Left out: XLA: MemoryError: no more"
    assert jax in result.stdout


def test_sizes_that_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = hmlstm._Cell.measure

    def measured(cell: Any, n: int) -> Any:
        if n == 16:
            raise MemoryError("16 is too much")
        return whole(cell, n)

    monkeypatch.setattr(hmlstm._Cell, "measure", measured)
    target = tmp_path / "cell.json"
    run("hmlstm", "--n", "8,16", "--backend", "cpu", "--json", target, *QUICK)
    found = json.loads(target.read_text())
    assert {row["n"] for row in found["rows"]} == {8}
    assert found["left_out"] == ["Left out: n = 16: 16 is too much"]


@pytest.mark.parametrize("command", ["sweep", "hmlstm", "divergence"])
def test_measured_rows_are_kept_when_a_later_step_fails(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind = {"sweep": sweep.Sweep, "hmlstm": hmlstm._Cell, "divergence": divergence._Divergence}[command]
    whole, steps = kind.measure, []

    def measured(*arguments: Any) -> Any:
        steps.append(1)
        if len(steps) == 2:
            raise RuntimeError("unplugged")
        return whole(*arguments)

    monkeypatch.setattr(kind, "measure", measured)
    target = tmp_path / "rows.json"
    given = {"sweep": ["--arity", "1:2", "--n", "8"], "hmlstm": ["--n", "8,16"], "divergence": ["--n", "128"]}[command]
    result = CliRunner().invoke(group, [command, *given, "--backend", "cpu", "--json", str(target), *QUICK])
    assert str(result.exception) == "unplugged"
    assert result.exit_code == 1
    assert (
        len(re.findall(r"^ +(?:\d+ |rows |columns )", result.stdout, re.MULTILINE))
        == ({"sweep": 1, "hmlstm": 6, "divergence": 1}[command])
    )
    assert "Not finished: " in result.stderr
    assert len(json.loads(target.read_text())["rows"]) == {"sweep": 1, "hmlstm": 6, "divergence": 1}[command]


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
@pytest.mark.slow
def test_peers_that_are_there_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    monkeypatch.setattr(peers, "NAMES", (name,))
    arrays = arrays_for(16)
    value, partials = complex_step(arrays)
    for mode in implementation.MODES:
        given = arrays[:6] if mode == "derivatives" else arrays
        expected = partials if mode == "derivatives" else [value, *(arrays[6] * partial for partial in partials)]
        for which in peers.frameworks(measure.HostDevice(), mode, 1):
            for result, exact in zip(which.prepare(given)(), expected, strict=True):
                np.testing.assert_allclose(which.host(result), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "arguments", [("divergence", "--n", "0"), ("hmlstm", "--n", "0"), ("divergence", "--plot", "x.txt")]
)
def test_bad_options(arguments: tuple[str, ...]) -> None:
    assert "Error: Invalid value" in run(*arguments, status=2).stderr


# --- on a GPU's fake: every kernel that is launched is one of those that the dry run compiles ------------------------


@pytest.mark.slow
@pytest.mark.cuda_compilers
def test_every_kernel_launched_on_a_gpu_is_in_the_dry_run(
    cupy: FakeCuPy,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    import gpu_kernels

    monkeypatch.setattr(sweep, "DEFAULT_ARITIES", "1:3")
    known = {row["image"] for row in gpu_kernels.compiled((9, 0))}
    # Nothing is computed, so nothing can be right.
    monkeypatch.setattr(checking.CellReference, "check", lambda *_: 0.0)
    for module in (sweep.checking, paper_sweep):
        monkeypatch.setattr(module, "check_product", lambda *_: (0.0, 1.0))
    for command in (("hmlstm", "--n", "63,64"), ("divergence", "--n", "64"), ("sweep", "--arity", "1:3", "--n", "64")):
        before, target = len(cupy.images), tmp_path / f"{command[0]}.json"
        result = CliRunner().invoke(
            group, [*command, "--backend", "cuda", "--json", str(target), "--plot", f"{tmp_path}/x.png", *QUICK]
        )
        assert result.exit_code == 0, (result.output, result.exception)
        assert set(cupy.images[before:]) <= known, command
        assert len(cupy.images) > before
        found = json.loads(target.read_text())
        assert (found["backend"], found["device"]) == ("cuda", "Pretended H1")
        if command[0] == "hmlstm":
            names = {row["implementation"] for row in found["rows"]}
            assert {"CUDA C++, 1 a thread", "CUDA C++, 4 a thread", "CuPy by hand"} <= names
            assert {row["timed_by"] for row in found["rows"]} == {"events"}
        if command[0] == "sweep":
            assert all(row["by_hand_seconds"] > 0 and row["sm_90_registers"] > 0 for row in found["rows"])
    names = {name for name, *_ in cupy.launches}
    assert {"hm_lstm_derivatives", "hm_lstm_value_and_pullback", "product_forward"} <= names


@pytest.mark.cuda_compilers
def test_arguments_of_the_kernels_by_hand(cupy: FakeCuPy) -> None:  # noqa: F811
    arrays = [cupy.asarray(array) for array in arrays_for(64)]
    out = [cupy.empty((64, 64), np.float32) for _ in range(5)]
    by_hand.launch_cell(by_hand.compile_by_hand("hm_lstm_value_and_pullback", (9, 0), 4), arrays, out)
    _, grid, block, arguments, _ = cupy.launches[-1]
    assert [int(number) for number in arguments[:4]] == [64, 64, 64, 1]
    assert [type(number) for number in arguments[:4]] == [np.uint32, np.uint32, np.int32, np.int32]
    assert [int(pointer) for pointer in arguments[4:]] == [array.data.ptr for array in (*arrays, *out)]
    assert grid[0] * block[0] == 16, "four elements a thread"
    assert grid[1] * block[1] == 64
    by_hand.launch_product(by_hand.compile_by_hand("product_prefix", (9, 0), 1, 3), arrays[:3], out[:4])
    _, grid, block, (size, inputs, outputs), _ = cupy.launches[-1]
    assert int(size) == 4096 == grid[0] * block[0]
    assert (inputs.size, inputs.nbytes, outputs.nbytes) == (1, 3 * 8, 4 * 8), "structures, by value"
    assert inputs["at"][0].tolist() == [array.data.ptr for array in arrays[:3]]
    assert outputs["at"][0].tolist() == [array.data.ptr for array in out[:4]]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="no GPU, or no CuPy to reach it")
def test_the_experiments_on_a_gpu(tmp_path: Path) -> None:
    commands = ("sweep", "--arity", "1,3", "--n", "256"), ("hmlstm", "--n", "256"), ("divergence", "--n", "256")
    for command in commands:
        target = tmp_path / f"{command[0]}.json"
        run(*command, "--backend", "cuda", "--json", target, *QUICK)
        found = json.loads(target.read_text())
        assert found["backend"] == "cuda"
        assert found["device"] == found["machine"]["gpus"][0]["name"]
        assert all(row["seconds"] > 0 for row in found["rows"])


# --- Nsight Compute ------------------------------------------------------------------------------------------------

NCU = """\
==PROF== Connected to process 1
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","product_kernel","sm__warps_active.avg.pct_of_peak_sustained_active","%","11.0"
"0","1","product_kernel","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","12.0"
"0","1","product_kernel","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","13.0"
"1","1","product_kernel","sm__warps_active.avg.pct_of_peak_sustained_active","%","91.5"
"1","1","product_kernel","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","42.0"
"1","1","product_kernel","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","83.0"
==PROF== Disconnected
"""


def fake_ncu(folder: Path, text: str, status: int = 0) -> None:
    (folder / "said").write_text(text)
    tool = folder / "ncu"
    tool.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\ncat {folder}/said\nexit {status}\n')
    tool.chmod(0o755)


def test_profile_takes_the_second_of_two_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(tmp_path, NCU)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found, why = profiling.profile([7], 32)
    assert (found, why) == ([{"achieved_occupancy": 0.915, "compute_share": 0.42, "dram_share": 0.83}], "")
    asked = (tmp_path / "asked").read_text()
    assert "--csv" in asked and "bench.paper.profiling 7 32" in asked
    assert all(metric in asked for metric in profiling.METRICS)


def test_profile_says_why_there_are_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    if shutil.which("ncu") is None:
        assert "not on the path" in profiling.profile([1], 8)[1]
    fake_ncu(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - no permission\n", 1)
    assert profiling.profile([1], 8) == ([], "Nsight Compute failed: ERR_NVGPUCTRPERM - no permission")
    fake_ncu(tmp_path, NCU)
    assert profiling.profile([1, 2], 8) == ([], "Nsight Compute failed: it gave no figures"), "one arity is missing"
