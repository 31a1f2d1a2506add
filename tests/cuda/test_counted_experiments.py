"""The paper's experiments counted without a GPU: the figures that they show, and that the launches are right."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import run as run_command

from bench.paper import checking, counted_cell, launches, traffic
from bench.paper.__main__ import group
from bench.paper.counted import Counting, counted_row
from bench.paper.divergence import CONTROLS
from bench.paper.implementation import MODES
from dualbcast.cli.checking import product
from dualbcast.counting import executor
from dualbcast.counting.counter import Counts, Executed
from dualbcast.counting.devices import DEVICES
from dualbcast.counting.launch import count_together
from dualbcast.errors import BackendError

pytestmark = [
    pytest.mark.cuda_compilers,
    pytest.mark.skipif(executor.COMPILER is None, reason="to run PTX takes gcc"),
]
HOPPER = (9, 0)
PAGE = (Path(__file__).parents[2] / "docs" / "background" / "paper.md").read_text(encoding="utf-8")
run = functools.partial(run_command, commands=group)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_counted_computes_the_right_results(mode: Any) -> None:
    arrays = counted_cell.arrays_of(64, "rows", "random", 1)
    reference = checking.CellReference(arrays[:6], None if mode == "derivatives" else arrays[6])
    names = []
    for name, launched in counted_cell.implementations(arrays, mode, HOPPER):
        count_together(launched)
        count = 4 if mode == "derivatives" else 5
        if name.startswith("reverse"):
            found = {launch.name: launch.arrays[-1] for launch in launched}
            results = [found[each] for each in ("value", "dc", "df", "di", "dg") if each in found]
        else:
            results = list(launched[-1].arrays[-count:])
        reference.check([each.reshape(64, 64) for each in results], np.asarray, 16.0, name)
        names.append(name)
    assert len([name for name in names if not name.startswith("Triton")]) == 5


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("mode", MODES)
def test_the_formula_for_bytes_is_what_a_warp_touches(mode: Any, control: str) -> None:
    arrays = counted_cell.arrays_of(64, control, "random", 3)
    row, _ = counted_row([counted_cell.fused("ours", counted_cell.models.cell_update, arrays, mode, HOPPER)])
    assert row["dram_bytes"] == traffic.bytes_needed(arrays[4], arrays[5], 64, mode, 32)


def test_the_figures_of_hmlstm() -> None:
    rows = counted_cell.count_hmlstm((512,), "rows", "random", 0, Counting(HOPPER, None)).rows
    found = {(row["mode"], row["implementation"].split(",")[0]): row for row in rows}
    hand = {row["mode"]: row for row in rows if row["implementation"] == "CUDA C++, 4 a thread"}
    for mode, least in (("derivatives", 2.8), ("value and pullback", 3.1)):
        reverse, masks = found[mode, "reverse"], found[mode, "masks"]
        assert reverse["dram_ratio"] >= least
        assert reverse["sectors_ratio"] >= least
        assert masks["issued_ratio"] >= 1.5
        # The page has the bytes; instructions differ a little from one release of the compilers to the next.
        assert f"| {reverse['dram_ratio']:.2f} in bytes, " in PAGE
        assert f"| {masks['sectors_ratio']:.2f} | {masks['dram_ratio']:.2f} | " in PAGE
        # Ours over the kernel by hand.
        assert 1 / hand[mode]["issued_ratio"] <= 1.03
        assert 1 / hand[mode]["sectors_ratio"] <= 1.03
        # Rows are whole warps.
        ours = found[mode, "fused forward mode"]
        assert (ours["lane_share"], ours["divergent"], ours["bank_conflicts"]) == (1, 0, 0)
    # All that reverse mode stores for itself is not moved if caches keep it: 4 arrays in and 7 out, against 2 and 4.
    assert found["derivatives", "reverse"]["kept_ratio"] == pytest.approx(11 / 6, abs=0.01)


def test_the_figures_of_divergence() -> None:
    counting = Counting(HOPPER, None)
    rows = counted_cell.count_divergence((512,), (("uniform", 128), ("random", 1)), CONTROLS, 0, counting).rows
    found = {(row["control"], row["pattern"]): row for row in rows}
    for control in ("columns", "elements"):
        uniform, random = found[control, "uniform"], found[control, "random"]
        assert uniform["divergent"] == 0 < random["divergent"]
        # A half FLUSH, a quarter COPY, a quarter UPDATE: 6 arrays of n² are moved, 8 if some lane of a sector always
        # needs them; and by elements z and zb, whose half is not read by those of whole sectors.
        arrays = (6, 8) if control == "columns" else (7.5, 10)
        assert 32 * uniform["dram_sectors"] == pytest.approx(4 * 512**2 * arrays[0], rel=0.01)
        assert 32 * random["dram_sectors"] == pytest.approx(4 * 512**2 * arrays[1], rel=0.03)
        assert 0.25 < random["dram_overhead"] < 0.35
        # Both sides are computed for all elements, as by masks; what is loaded depends on the control.
        assert 0 < random["issued_overhead"] < 0.05
        assert 0.85 < random["masks_issued_ratio"] < uniform["masks_issued_ratio"] < 1
        assert random["repeated"] == 0
        shown = (f"{random[name]:+.1%}".replace("%", " %") for name in ("dram_overhead", "sectors_overhead"))
        assert f"| {control} | 512 | {' | '.join(shown)} |" in PAGE


def test_the_where_form_in_triton() -> None:
    pytest.importorskip("triton")
    arrays = counted_cell.arrays_of(64, "rows", "random", 1)
    names = [name for name, _ in counted_cell.implementations(arrays, "derivatives", HOPPER)]
    assert names[-1] == "Triton, where"
    from bench.paper.triton_cell import where_launch

    launch = where_launch("where", arrays[:6], HOPPER)
    counts = launch.count()
    checking.CellReference(arrays[:6]).check(list(launch.arrays[-4:]), np.asarray, 64.0, "Triton")
    # Everything is read: four arrays and four partials, of 512 sectors each, and two columns of 8 sectors.
    assert (counts.dram_read, counts.dram_written) == (4 * 512 + 2 * 8, 4 * 512)
    assert any(line is not None and line[0].endswith("triton_cell.py") for line in counts.by_line())


def test_launches_of_products_by_hand() -> None:
    generator = np.random.default_rng(0)
    xs = [generator.uniform(-2, 2, (8, 64)).astype(np.float32) for _ in range(3)]
    launch = launches.by_hand_product("by hand", xs, HOPPER, 2, "product_forward")
    counts = launch.count()
    expected = [product(*each) for each in zip(*(x.ravel().tolist() for x in xs), strict=True)]
    np.testing.assert_allclose(launch.arrays[3].ravel(), expected, rtol=1e-6)
    # 512 elements, two a thread, are 8 warps; 3 arrays are read and 4 written, of 64 sectors each.
    assert (counts.warps, counts.dram_read, counts.dram_written) == (8, 3 * 64, 4 * 64)


def test_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "known_capabilities", lambda: [(7, 5), (9, 0)])
    assert launches.capability_for(DEVICES["V100"]) == (7, 5)
    assert launches.capability_for(DEVICES["H100"]) == (9, 0)
    with pytest.raises(BackendError, match=r"from \(10, 0\) on"):
        launches.capability_for(DEVICES["B200"])


def test_published_rates_agree_with_published_clocks() -> None:
    for name, clock in {"V100": 1.53e9, "A100": 1.41e9, "H100": 1.98e9, "B200": 1.98e9}.items():
        assert DEVICES[name].clock == pytest.approx(clock, rel=0.01)
        assert DEVICES[name].source


def test_a_bound() -> None:
    # On a V100: 900 GB/s; 80 multiprocessors, 4 schedulers each, 1.533 GHz.
    def counts(issued: int, sectors: int) -> Counts:
        executed = Executed("add.f32", None, issued, 32 * issued, 0, "", False, 0, 0, 0)
        return Counts((executed,), 1, 1, sectors, 0)

    bound = DEVICES["V100"].roofline(counts(1000, 900_000))
    assert (bound.bound, bound.seconds) == ("memory", pytest.approx(32e-6))
    bound = DEVICES["V100"].roofline(counts(490_625_000, 900_000))
    assert (bound.bound, bound.seconds) == ("issue", pytest.approx(1e-3))


def test_the_commands(tmp_path: Path) -> None:
    target, table = tmp_path / "counted.json", tmp_path / "counted.csv"
    result = run("sweep", "--counted", "--arity", "1,3", "--n", "64", "--json", target, "--csv", table)
    assert "Counted, not timed" in result.stdout
    found = json.loads(target.read_text())
    assert found["counted"]
    assert set(found["devices"]) == set(DEVICES)
    one, three = found["rows"]
    # An array in and two out; three in and four out.
    assert (one["H100_dram_per_element"], three["H100_dram_per_element"]) == (12, 28)
    assert len(table.read_text().splitlines()) == 3


def test_times_of_a_gpu_stand_beside(tmp_path: Path) -> None:
    earlier, target = tmp_path / "measured.json", tmp_path / "counted.json"
    rows = [{"control": "columns", "pattern": "random", "seconds": 0.5}]
    earlier.write_text(json.dumps({"backend": "cuda", "rows": rows}))
    arguments = ("divergence", "--counted", "--n", "128", "--measured", earlier)
    result = run(*arguments, "--json", target)
    assert "measured" in result.stdout
    found = {(row["control"], row["pattern"]): row for row in json.loads(target.read_text())["rows"]}
    assert found["columns", "random"]["measured_seconds"] == 0.5
    assert "measured_seconds" not in found["columns", "uniform"]
    earlier.write_text(json.dumps({"backend": "cpu", "device": "a processor", "rows": rows}))
    assert "measured on a processor, not on a GPU" in run(*arguments, status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hmlstm", "--counted-cc", "9.0"), "go with --counted"),
        (("divergence", "--counted", "--plot", "x.png"), "no picture"),
        (("sweep", "--counted", "--dtype", "float64"), "for the product, in float32"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*arguments, status=2).stderr
