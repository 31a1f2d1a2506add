"""The text that the compiler makes of the models, compared with files that a person has read.

`pytest tests/passes/test_golden_files.py --update-golden` rewrites the files; read the difference before committing it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.ir.nodes import Function, dump

GOLDEN = Path(__file__).parent / "golden"

full = np.ones((4, 6), np.float32)
rows = np.ones((4, 1), np.float32)  # control that is broadcast along rows


def cuda_shell(function: Any, *arrays: Any) -> str:
    """The CUDA C++ around the element function; made without a compiler."""
    call = differentiable_broadcast(function)._inspected(arrays, None, "value_and_jacobian")
    return call.spec.source(call.plan.geometry.layout, "cuda").shell


def passes(function: Any, target: str) -> str:
    """The product of two float32 arrays, and the IR after each pass of a target."""
    call = differentiable_broadcast(function, fastmath=True)._inspected(("float32",) * 2, None, "value_and_jacobian")
    trace: list[tuple[str, Function]] = []
    if target == "cpu":
        call.spec.program(call.plan.geometry.layout, trace)
    else:
        call.spec.source(call.spec.wide(call.plan.geometry.layout), target, trace)
    return "\n".join(f"{name}\n{dump(after)}" for name, after in trace)


CELL = (full, full, full, full, rows, rows)
TEXTS: dict[str, Callable[[], str]] = {
    "hm_lstm_cell": lambda: differentiable_broadcast(models.cell_update).inspect_source(*CELL, wrt=tuple("cfig")),
    "hm_lstm_cell_value": lambda: differentiable_broadcast(models.cell_update).inspect_source(*CELL, product="value"),
    "hm_lstm_cell_ir": lambda: differentiable_broadcast(models.cell_update).inspect_ir(*CELL, wrt=tuple("cfig")),
    "hm_lstm_cell_cuda": lambda: cuda_shell(models.cell_update, *CELL),
    "product_of_tanh": lambda: differentiable_broadcast(models.product_of_tanh).inspect_source(full, full, full),
    "kepler": lambda: differentiable_broadcast(models.eccentric_anomaly).inspect_source("float64", "float64"),
    "smooth_step": lambda: differentiable_broadcast(models.smooth_step).inspect_source("float16", "float16"),
    "smooth_step_passes": lambda: passes(models.smooth_step, "cpu"),
    "smooth_step_cuda_passes": lambda: passes(models.smooth_step, "cuda"),
    "smooth_step_cuda": lambda: cuda_shell(models.smooth_step, "float16", np.float16(1)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_is_the_one_that_was_read(name: str, update_golden: bool) -> None:
    text, path = TEXTS[name](), GOLDEN / f"{name}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TEXTS)
def test_making_it_again_gives_the_same(name: str) -> None:
    assert TEXTS[name]() == TEXTS[name]()


def test_every_golden_file_has_its_test() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(TEXTS)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_no_path_of_a_machine_is_in_the_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert str(Path(__file__).parent) not in text
    assert not re.search(r"# \S*[/\\]\S*\.py", text)
    assert "0x" not in text  # nor an address
    assert not re.search(r"[ \t]$", text, re.MULTILINE)


PYTHON = [name for name in TEXTS if not name.endswith(("_ir", "_cuda", "_passes"))]


@pytest.mark.parametrize("name", PYTHON)
def test_no_partial_that_is_zero_is_computed_with(name: str) -> None:
    """A structural zero has no name: no product has a constant 0 that stands for one."""
    tree = ast.parse(TEXTS[name]())
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factors = [side.id for side in (node.left, node.right) if isinstance(side, ast.Name)]
            # `horner` itself starts from 0 * x, which IEEE arithmetic does not let vanish.
            assert name == "smooth_step" or not {"f32_0", "f64_0"} & set(factors), ast.unparse(node)


@pytest.mark.parametrize("name", PYTHON)
def test_the_text_is_python_and_quotes_the_users_lines(name: str) -> None:
    text = TEXTS[name]()
    ast.parse(text)
    lines = Path(models.__file__).read_text(encoding="utf-8").splitlines()
    quoted = re.findall(r"# models\.py:(\d+)   (.*)$", text, re.MULTILINE)
    assert quoted
    for number, quote in quoted:
        assert lines[int(number) - 1].strip().startswith(quote.removesuffix("…").rstrip())
