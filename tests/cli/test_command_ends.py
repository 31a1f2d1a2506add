"""How commands end: with the rows that were done, with one error where memory is short, and with no number cut."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import QUICK
from command_line import run as run_command

from bench.paper import divergence, hmlstm, memory
from bench.paper.__main__ import group
from dualbcast.cli import report, sweep

pytestmark = pytest.mark.usefixtures("small_copy")

run = functools.partial(run_command, commands=group)

# --- failures -------------------------------------------------------------------------------------------------------


def test_a_failing_arity_leaves_the_rows_before_it(tmp_path: Path) -> None:
    file = tmp_path / "few.py"
    file.write_text("def few(*xs):\n    return xs[0] * xs[1] if len(xs) < 4 else xs[0].real.missing\n")
    table = tmp_path / "rows.csv"
    given = ["--function", f"{file}:few", "--arity", "2:5", "--n", "8", "--csv", str(table), *QUICK]
    result = run("sweep", *given, "--backend", "cpu", status=1)
    assert re.findall(r"^ +(\d+) ", result.stdout, re.MULTILINE) == ["2", "3"]
    assert len(table.read_text().splitlines()) == 3
    said = result.stderr.splitlines()
    assert "Not finished: arity 4: compiling" in said
    assert "Error: " in result.stderr.partition("Not finished")[2]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_the_memory_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * 10**9)
    result = run("hmlstm", "--n", "8,8192", "--backend", "cpu", *QUICK)
    assert re.match(r"n = 8192 takes about 9\.\d GB of memory; 2\.0 GB are available\.", result.stderr)
    assert re.search(r"Left out: n = 8192: it takes about 9\.\d GB of memory, and 2\.0 GB are available", result.stdout)
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert re.match(
        r"n = 8 takes about 0\.\d GB of memory\.", run("hmlstm", "--n", "8", "--backend", "cpu", *QUICK).stderr
    )


def test_without_memory_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(memory, "available_memory", lambda: 10**8)
    monkeypatch.setattr(hmlstm._Cell, "measure", refuse)
    result = run("hmlstm", "--backend", "cpu", *QUICK, status=1)
    assert re.search(r"Error: There is not enough memory: n = 512 takes about .*Give a smaller --n", result.stderr)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["sweep", "hmlstm", "divergence"])
def test_memory_that_runs_out_is_one_error(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> None:
        raise MemoryError("Unable to allocate 8.00 GiB")

    kind = {"sweep": sweep.Sweep, "hmlstm": hmlstm._Cell, "divergence": divergence._Divergence}[command]
    monkeypatch.setattr(kind, "measure", exhausted)
    result = run(command, "--n", "8", "--backend", "cpu", *QUICK, status=1)
    assert "Error: There is not enough memory; give a smaller --n. Unable to allocate 8.00 GiB" in result.stderr


def test_available_memory_is_the_least_that_anybody_allows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = ("memory.max", "memory.current")
    group_files = (*(str(tmp_path / name) for name in files), "inactive_file")
    monkeypatch.setattr(memory, "_GROUP_FILES", (group_files,))
    whole = memory.available_memory()
    assert whole is None or whole > 10**6
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (memory.available_memory() is None) == (whole is None)
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory.available_memory() == 600000


# --- narrow terminals -------------------------------------------------------------------------------------------------


def figures(text: str) -> list[str]:
    """All numbers of a table's rows, sorted."""
    return sorted(re.findall(r"[+-]?\d[\d.]*%?", text))


@pytest.mark.parametrize("width", [100, 80, 60, 40, 24])
def test_no_number_is_cut_however_short_the_line_is(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    device: Any = SimpleNamespace(name="machine", backend="cpu", threads=2, cache_bytes=1)
    cell = hmlstm._Cell(device=device, control="rows", pattern="random", peers=False)
    branches = divergence._Divergence(device=device, n=2048)
    settings: dict[str, Any] = {"function": None, "exact": None, "name": "product", "n": 1024, "dtype": "float32"}
    product = sweep.Sweep(device=device, **settings, capabilities=[(9, 0), (10, 0)], arities=(32,))
    timed = {"seconds": 12.3456789, "seconds_best": 12.0, "bytes": 123456789012, "bytes_per_second": 987654321098}
    timed |= {"copy_share": 0.875, "error_ulp": 1.25, "ns_per_element": 12345.678}
    rows: list[tuple[Any, dict[str, Any]]] = [
        (cell.table, {"n": 8192, "mode": "derivatives", "implementation": "reverse", "launches": 7, "speedup": 1.75}),
        (branches.table, {"control": "elements", "pattern": "random", "overhead": 0.5, "overhead_by_bytes": 0.25}),
        (branches.table, {"control": "rows", "saved": 0.375, "masks_seconds": 34.567891, "masks_ratio": 2.8125}),
        (product.table, {"arity": 32, "arithmetic": 4321, "transcendental": 32, "sm_90_registers": 255}),
        (product.table, {"arity": 32, "sm_90_registers": 255, "sm_90_occupancy": 0.25, "sm_100_registers": 254}),
    ]
    for table, row in rows:
        wide, narrow = (figures_of(table, timed | row, columns, monkeypatch) for columns in (10_000, width))
        repeated = figures(str(row.get("n", row.get("arity", ""))))
        assert not wide - narrow
        assert set(narrow - wide) <= set(repeated)


def figures_of(table: Any, row: dict[str, Any], columns: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The figures of a row on a terminal of so many columns; the row follows the lines under headings."""
    monkeypatch.setattr(report, "line_width", lambda: columns)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        report.show(table([row]))
    text = printed.getvalue()
    assert "…" not in text
    _, *parts = re.split(r"^ ─+ *\n", text, flags=re.MULTILINE)
    heads = [line for line in text.splitlines() if re.match(r" ─+ *$", line)]
    # A table fits, unless it has one column besides those that name the row.
    for head, part in zip(heads, parts, strict=True):
        assert len(head) <= columns or len(part.splitlines()[0].split()) <= 3
    return Counter(figure for part in parts for figure in figures(part.splitlines()[0]))
