"""All that needs a GPU, in one command of less than eight minutes: the experiments, the GPU tests, the sanitizers.

    python bench/gpu_report.py                     writes bench/results/DEVICE: JSON, pictures, summary.md
    python bench/gpu_report.py --dry-run --cc 9.0  needs no GPU: compiles every kernel of the experiments

A part that fails, or is not done in time, is said at the end, and the exit status is 1; the others go on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_summary import summary

from dualbcast.cli import measure
from dualbcast.cli.options import capability
from dualbcast.counting import executor

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 470.0  # seconds
_TOOLKIT = Path("/usr/local/cuda/bin/compute-sanitizer")
# CUDA's Python packages ask the driver for functions that older ones do not have, and CuPy for attributes.
_MEMCHECK = ["--report-api-errors", "no"]


@dataclass
class Part:
    """A step of the report.

    Attributes
    ----------
    name : str
    command : list of str
        Empty if it cannot be run here.
    seconds : float
        The most that it may take.
    status : str
        "passed", "failed (…)", or "left out: …".
    """

    name: str
    command: list[str]
    seconds: float
    status: str = ""
    took: float = 0.0
    process: subprocess.Popen[str] | None = field(default=None, repr=False)


def parts(folder: Path, kernels: Path) -> list[list[Part]]:
    """The parts in groups: each timed part alone on the GPU; the tests, which leave their kernels in a folder, beside
    what is counted on the processor; and the sanitizers together, which find the kernels there."""

    def experiment(name: str, seconds: float, *options: str) -> Part:
        files = ["--json", str(folder / f"{name}.json"), "--plot", str(folder / f"{name}.png")]
        return Part(name, [sys.executable, "-m", "bench.paper", name, "--backend", "cuda", *options, *files], seconds)

    sums = [sys.executable, str(ROOT / "bench" / "gpu_sums.py"), str(folder / "sums.json")]
    timed = [
        experiment("hmlstm", 150, "--peers"),
        experiment("divergence", 30),
        experiment("sweep", 110),
        Part("sums", sums, 30),
    ]
    counted = [
        Part(
            f"{name}_counted",
            [
                *(sys.executable, "-m", "bench.paper", name, "--counted", *options),
                *("--json", str(folder / f"{name}_counted.json")),
            ],
            240,
            "" if executor.COMPILER else "left out: gcc is not installed",
        )
        for name, options in _counted_options()
    ]
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "--kernels", str(kernels)]
    if importlib.util.find_spec("xdist"):
        tests += ["-n", str(min(4, os.cpu_count() or 1))]
    sanitizer = shutil.which("compute-sanitizer") or (str(_TOOLKIT) if _TOOLKIT.exists() else None)
    checked = []
    for tool, more in (("memcheck", _MEMCHECK), ("racecheck", [])):
        options = ["--tool", tool, *more, "--target-processes", "all", "--error-exitcode", "9"]
        command = [sanitizer, *options, *tests, "tests"] if sanitizer else []
        why = "" if sanitizer else "left out: compute-sanitizer is not installed"
        checked.append(Part(tool, command, 240, why))
    return [*([part] for part in timed), [Part("tests", [*tests, "tests"], 240), *counted], checked]


def _counted_options() -> Iterator[tuple[str, list[str]]]:
    """What is counted, which takes no time of the GPU, for the measured kernels of the device."""
    found = measure.gpus()
    target = ["--counted-cc", found[0].cc] if found else []
    yield "hmlstm", target
    yield "divergence", ["--n", "2048", *target]
    yield "sweep", ["--arity", "1,2,4,8,16,18,32"]


def run(groups: list[list[Part]], folder: Path, budget: float) -> list[Part]:
    """Run the groups one after the other, the parts of each together; the output of each goes into a log."""
    end = time.monotonic() + budget
    for group in groups:
        started = time.monotonic()
        for part in group:
            if part.command and not part.status:
                _start(part, folder)
        for part in group:
            if part.process is not None:
                left = min(started + part.seconds, end) - time.monotonic()
                _finish(part, max(1.0, left), started)
            print(f"{part.name}: {part.status}" + (f", {part.took:.0f} s" if part.took else ""), flush=True)
    return [part for group in groups for part in group]


def _start(part: Part, folder: Path) -> None:
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with (folder / f"{part.name}.log").open("w") as log:
        part.process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "140"},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def _finish(part: Part, seconds: float, started: float) -> None:
    assert part.process is not None
    try:
        status = part.process.wait(seconds)
        # pytest says 5 where there is no test: nothing was checked.
        part.status = "passed" if status == 0 else f"failed (status {status})"
    except subprocess.TimeoutExpired:
        if hasattr(os, "killpg"):  # the whole session: a sanitizer's or a test runner's children too
            os.killpg(part.process.pid, 9)
        else:
            part.process.kill()
        part.process.wait()
        part.status = "failed (out of time)"
    part.took = time.monotonic() - started


def results(folder: Path) -> dict[str, Any]:
    """The JSON files that the parts have written."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="compile every kernel of the experiments; needs no GPU")
    parser.add_argument("--cc", type=capability, default=(9, 0), help="for --dry-run: the compute capability (9.0)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="where the results go")
    parser.add_argument("--budget", type=float, default=BUDGET, help=f"seconds that all may take ({BUDGET:.0f})")
    given = parser.parse_args(arguments)
    if given.dry_run:
        import gpu_kernels

        rows = gpu_kernels.compiled(given.cc, lambda step: print(step, file=sys.stderr))
        gpu_kernels.show(rows, given.cc)
        return 0
    if not measure.gpus():
        print("No GPU answers here. With --dry-run every kernel is compiled all the same.", file=sys.stderr)
        return 2
    name = measure.gpus()[0].name
    folder = given.out / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as kernels:
        done = run(parts(folder, Path(kernels)), folder, given.budget)
    text = summary(name, results(folder), done, time.monotonic() - started)
    (folder / "summary.md").write_text(text, encoding="utf-8")
    print(text)
    failed = [part.name for part in done if part.status.startswith("failed")]
    if failed:
        print(f"Failed: {', '.join(failed)}; see the logs in {folder}.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
