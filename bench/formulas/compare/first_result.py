"""First results: the time of a formula's first call, with all compilation and no cache, in dualbcast and Dr.Jit.

Each system has a process of its own and an empty folder for its cache on disk. Imports and the first call of another
function come before: the time is that of one more function in a running process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["first_results"]

SYSTEMS = ("dualbcast", "drjit")
SIZE = 1 << 10


def first_results(names: list[str]) -> str:
    """A table of seconds for these formulas, and the median of each system."""
    found = {system: _run(system, names) for system in SYSTEMS}
    lines = [f"{'formula':34}" + "".join(f"{system:>12}" for system in SYSTEMS)]
    for name in names:
        row = "".join(
            f"{found[system][name] * 1e3:9.0f} ms" if name in found[system] else f"{'-':>12}" for system in SYSTEMS
        )
        lines.append(f"{name:34}{row}")
    both = [name for name in names if all(name in found[system] for system in SYSTEMS)]
    if both:
        medians = [median(found[system][name] for name in both) for system in SYSTEMS]
        lines.append(f"{f'median of {len(both)}':34}" + "".join(f"{seconds * 1e3:9.0f} ms" for seconds in medians))
        quicker = sum(found[SYSTEMS[0]][name] < found[SYSTEMS[1]][name] for name in both)
        lines.append(f"dualbcast is first in {quicker} of {len(both)}")
    return "\n".join(lines)


def _run(system: str, names: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        # Dr.Jit keeps kernels in the home directory.
        environment = {**os.environ, "DUALBCAST_CACHE_DIR": folder, "HOME": folder}
        command = [sys.executable, "-m", "bench.formulas.compare.first_result", system, *names]
        done = subprocess.run(
            command, env=environment, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
        )
    if done.returncode:
        print(f"{system} is left out: {done.stderr.strip().splitlines()[-1] if done.stderr else 'it failed'}")
        return {}
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _of_ours(case: Any) -> Iterator[Callable[[], Any]]:
    from dualbcast import differentiable_broadcast

    function: Any = differentiable_broadcast(case.formula.function)
    yield lambda: function.value_and_jacobian(*case.arguments, wrt=case.formula.wrt)


def _of_drjit(case: Any) -> Iterator[Callable[[], Any]]:
    import drjit as dr

    from bench.formulas.compare import drjit_forms

    for name, make in drjit_forms.forms(case).items():
        if "frozen" not in name:
            dr.flush_kernel_cache()
            yield make()


def _main(system: str, names: list[str]) -> None:
    import bench.formulas.compare  # noqa: F401

    import systems  # isort: skip

    systems.settle()

    from bench.formulas.compare.case import Case
    from bench.formulas.corpus import FORMULAS, formula, load

    @formula(source="none", dtype="float64", x=(0.0, 1.0))
    def earlier(x: float) -> float:
        return x * x

    calls = {"dualbcast": _of_ours, "drjit": _of_drjit}[system]
    corpus = load()
    for call in calls(Case(FORMULAS.pop("earlier"), SIZE)):
        call()
    seconds: dict[str, float] = {}
    for name in names:
        case = Case(corpus[name], SIZE)
        try:
            if system != "dualbcast":
                _ = case.arrays, case.active, case.iterations
            taken = []
            for call in calls(case):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        if taken:
            seconds[name] = min(taken)
    print(json.dumps(seconds))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
