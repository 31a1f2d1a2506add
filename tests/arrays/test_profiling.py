"""The names that profilers see: of machine code, and of launches on a GPU."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualbcast import from_source
from dualbcast.runtime import profiling

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="perf is Linux's")
MAP = Path(f"/tmp/perf-{os.getpid()}.map")

TEXT = """
import math
def profiled(x, y):
    return math.lgamma(x) ** 0.3 * math.exp(-y) + {}
"""


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = MAP.read_bytes() if MAP.exists() else None
    monkeypatch.setattr(profiling, "WANTED", True)
    yield
    MAP.unlink(missing_ok=True)
    if before is not None:
        MAP.write_bytes(before)


def entries() -> list[tuple[int, int, str]]:
    """The map's beginnings, sizes and names."""
    lines = [line.split(" ", 2) for line in MAP.read_text().splitlines()]
    return [(int(start, 16), int(size, 16), name) for start, size, name in lines]


@LINUX
@pytest.mark.usefixtures("wanted")
def test_the_functions_of_a_kernel_are_in_the_map() -> None:
    function = from_source(TEXT.format("1.0"))
    x = np.linspace(1.0, 2.0, 1000)
    kernel = function._inspected((x, x), None, "value_and_jacobian").cpu_kernel()
    own = [entry for entry in entries() if entry[2].startswith("dualbcast:profiled:2_to_3:float64")]
    starts = {name: start for start, _, name in own}
    assert starts["dualbcast:profiled:2_to_3:float64"] == kernel._address
    assert len(own) >= 3
    # They are code, and no two share any.
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    code = [tuple(int(end, 16) for end in line[0].split("-")) for line in maps if "x" in line[1]]
    for start, size, name in own:
        assert any(first <= start and start + size <= last for first, last in code), name
    ends = sorted((start, start + size) for start, size, _ in own)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


@LINUX
@pytest.mark.usefixtures("wanted")
def test_perf_finds_the_kernel(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    call = "for _ in range(60):\n    profiled.value_and_jacobian(x, x)\n"
    text = (
        f"import numpy as np\nfrom dualbcast import from_source\nprofiled = from_source('''{TEXT.format('2.0')}''')\n"
    )
    script.write_text(f"{text}x = np.linspace(1.0, 2.0, 300_000)\n{call}")
    data, environment = str(tmp_path / "data"), {**os.environ, "DUALBCAST_PROFILE": "1"}
    try:
        command = ["perf", "record", "-q", "-o", data, sys.executable, str(script)]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("perf is not installed, or may not record")
    report = subprocess.run(["perf", "report", "-i", data, "--stdio"], capture_output=True, text=True, check=False)
    assert "dualbcast:profiled:2_to_3:float64" in report.stdout


def test_without_being_asked_for_there_is_no_map() -> None:
    text = "import os; from dualbcast import from_source; from_source('lambda x: x * x')(2.0)\n"
    text += "assert not os.path.exists(f'/tmp/perf-{os.getpid()}.map')"
    for value in ("", "0"):
        subprocess.run([sys.executable, "-c", text], env={**os.environ, "DUALBCAST_PROFILE": value}, check=True)


def test_other_formats_are_left_alone() -> None:
    profiling.name_code(b"\xcf\xfa\xed\xfe", "f", 0, "label")
    assert not MAP.exists()


@pytest.mark.gpu
def test_launches_are_in_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy, nvtx = pytest.importorskip("cupy"), pytest.importorskip("cupy.cuda.nvtx")
    seen: list[Any] = []
    monkeypatch.setattr(nvtx, "RangePush", seen.append)
    monkeypatch.setattr(nvtx, "RangePop", lambda: seen.append(None))
    monkeypatch.setattr(profiling, "WANTED", True)
    function = from_source("def ranged(x):\n    return 3.5 * x\n")
    for _ in range(3):
        assert function(cupy.asarray([2.0])).get().tolist() == [7.0]
    assert seen == ["ranged: value; float64", None] * 3
