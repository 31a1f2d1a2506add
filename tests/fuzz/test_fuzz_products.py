"""Random programs: jvp, vjp, Hessians and products with them on the python backend, against the fuzzer's oracles."""

from __future__ import annotations

from typing import Any

import pytest
from examine import Mismatch, Tally, expectations
from products import PRODUCTS, examine_products
from program import Program
from session import program_of

DEFAULT, LONG = range(12), range(12, 172)


def examined(program: Program) -> Tally:
    tally = Tally()
    if not program.single:
        examine_products(program, expectations(program, Tally()), tally)
    return tally


@pytest.mark.parametrize("seeds", [DEFAULT, pytest.param(LONG, marks=pytest.mark.slow)], ids=str)
def test_products_of_random_programs(seeds: range) -> None:
    tallies = [examined(program_of(seed)) for seed in seeds]
    for product in PRODUCTS:
        wanted = {"value": "value alone", "jacobian": "derivative alone"}.get(product, product)
        assert sum(tally.comparisons[wanted] for tally in tallies) > 2 * len(seeds), product
    assert sum(tally.seconds for tally in tallies) > len(seeds)


def test_a_wrong_second_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second derivatives of a function that has lost one of its first."""
    from dualbcast.program import derived_functions

    whole = derived_functions.jacobian_of

    def lossy(function: Any, seeds: Any, **how: Any) -> Any:
        dual = whole(function, seeds, **how)
        if len(function.outputs) > 1:  # the second pass
            dual.partials.pop(max(dual.partials), None)
        return dual

    monkeypatch.setattr(derived_functions, "jacobian_of", lossy)
    monkeypatch.setattr("dualbcast.program.products.identity", lambda _: "")
    program = Program("import math\n\n\ndef f(x):\n    return math.sin(x)\n", ("x",), ("float",), (0,), None, 0, False)
    with pytest.raises(Mismatch, match=r"hessian, at .*: of 0 is"):
        examined(program)
