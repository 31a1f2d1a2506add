"""Every trap, on each backend and in each dtype, against what was worked out by hand; and the page that shows them."""

from __future__ import annotations

import itertools
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import TRAPS, Trap, ours
from forwarddiff import FACTS

ROOT = Path(__file__).parent.parent.parent
BACKENDS = ("python", "cpu")
COPIES = 9  # so that the CPU kernel goes through its vector loop and through what is left
EACH: list[Any] = [
    pytest.param(
        trap,
        backend,
        dtype,
        id=f"{trap.name}-{backend}-{dtype}",
        marks=pytest.mark.xfail(strict=True, reason=trap.waits) if trap.waits else (),
    )
    for trap in TRAPS
    for backend, dtype in itertools.product(BACKENDS, trap.dtypes)
]


@pytest.mark.parametrize(("trap", "backend", "dtype"), EACH)
def test_trap(trap: Trap, backend: str, dtype: str) -> None:
    found = ours(trap, backend, dtype, COPIES)
    tolerance = 8 * float(np.finfo(dtype).eps)
    assert len(found.values) in (len(trap.points), COPIES * len(trap.points))
    for (point, (value, partials)), a, b in zip(itertools.cycle(trap.row.items()), found.values, found.partials):
        np.testing.assert_allclose(a, value, tolerance, 0, err_msg=f"the value at {point}")
        np.testing.assert_allclose(b, partials, tolerance, 0, err_msg=f"the partials at {point}")


def test_the_page_is_that_of_the_table(request: pytest.FixtureRequest) -> None:
    generate = runpy.run_path(str(ROOT / "docs" / "generate_traps.py"))
    page, path = generate["page"](), generate["PAGE"]
    if request.config.getoption("--update-golden"):
        path.write_text(page, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page, "run: python docs/generate_traps.py"


def test_the_record_has_every_row() -> None:
    record = json.loads((ROOT / "docs" / "traps.json").read_text(encoding="utf-8"))
    for peer in record.values():
        assert list(peer["rows"]) == [trap.name for trap in TRAPS]
    assert FACTS.keys() <= {trap.name for trap in TRAPS}
