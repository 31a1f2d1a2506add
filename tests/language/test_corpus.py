"""Every function of the corpus, on each backend and dtype: values against plain Python, Jacobians against two oracles.

The reference is double precision at the arguments as the dtype holds them. A result may be off by the case's allowance
in roundings of the dtype, relative to one more than its size.
"""

from __future__ import annotations

import dis
import inspect
import sys
from types import CodeType, FunctionType
from typing import Any

import corpus
import corpus_objects
import numpy as np
import pytest
from corpus import CORPUS, Case
from corpus_calls import arrays, compiled, expected
from oracles import finite_differences, numbers_of

BACKENDS, DTYPES = ("python", "cpu"), ("float64", "float32")
EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


def assert_close(found: Any, wanted: Any, case: Case, dtype: str, what: str) -> None:
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    assert np.all(np.isfinite(wanted)), f"{what}: a point of the corpus is no good"
    error = np.abs(found - wanted) / (1 + np.abs(wanted)) / np.finfo(dtype).eps
    assert np.all(error <= case.allowance), f"{what}: {found} is not {wanted}; off by {error} roundings"


def blocks(jacobian: Any, outputs: int) -> dict[tuple[int, str], Any]:
    return {(output, name): jacobian[output, name] for output in range(outputs) for name in jacobian.wrt}


# --- the corpus itself -----------------------------------------------------------------------------------------------

FILES = {corpus.__file__: corpus, corpus_objects.__file__: corpus_objects}

# What CPython puts around a function's own instructions, and what tracing does not see.
_UNSEEN = {"RESUME", "CACHE", "MAKE_CELL", "COPY_FREE_VARS", "NOP", "EXTENDED_ARG", "UNPACK_EX", "PRECALL"}


def _instructions(code: CodeType) -> set[tuple[str, int, Any]]:
    """The instructions of a function and of those defined in it, that are reachable in the source."""
    found = set()
    for instruction in dis.get_instructions(code):
        positions = instruction.positions
        if instruction.opname not in _UNSEEN and positions is not None and positions.lineno is not None:
            found.add((code.co_qualname, instruction.offset, positions))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _instructions(constant)
    return found


def _traced(case: Case) -> set[tuple[str, int]]:
    """The instructions that Python runs for the points of a case, by function and offset."""
    ran: set[tuple[str, int]] = set()

    def local(frame: Any, event: str, arg: Any) -> Any:  # noqa: ARG001
        if event == "opcode":
            ran.add((frame.f_code.co_qualname, frame.f_lasti))
        return local

    def start(frame: Any, event: str, arg: Any) -> Any:  # noqa: ARG001
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    sys.settrace(start)
    try:
        for point in case.points:
            case.function(*point)
    finally:
        sys.settrace(before)
    return ran


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="reads CPython 3.11's instructions")
def test_points_reach_every_instruction():
    ran = set().union(*map(_traced, CORPUS))
    codes = [item.__code__ for item in vars(corpus).values() if isinstance(item, FunctionType)]
    codes = [code for code in codes if code.co_filename == corpus.__file__ and code.co_name != "case"]
    wanted = set().union(*map(_instructions, codes))
    lines = inspect.getsource(corpus).splitlines()
    wanted = {item for item in wanted if "# never" not in lines[item[2].lineno - 1]}
    missed = sorted({(at.lineno, at.col_offset or 0, name) for name, offset, at in wanted if (name, offset) not in ran})
    assert not missed, "never run (line, column, function): " + ", ".join(map(str, missed))


def test_corpus_is_large_and_named_apart():
    assert len(CORPUS) >= 60
    assert len({case.name for case in CORPUS}) == len(CORPUS)


@EVERY
def test_oracles_agree(case: Case):
    for at, (values, slopes) in enumerate(expected(case, "float64")):
        plain = numbers_of(case.function(*case.points[at]))
        assert [float(value) for value in values] == pytest.approx([float(value) for value in plain], rel=1e-13)
        if at in case.kinks:
            continue
        for found, wanted in zip(slopes, finite_differences(case.function, case.points[at], case.floats), strict=True):
            assert found == pytest.approx(wanted, rel=1e-11, abs=1e-11)


# --- the package against the oracles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", BACKENDS)
@EVERY
def test_value_and_jacobian(case: Case, backend: str, dtype: str):
    function = compiled(case, backend)
    value, jacobian = function.value_and_jacobian(*arrays(case, dtype))
    wanted = expected(case, dtype)
    values = numbers_of(value)
    assert isinstance(value, tuple) == isinstance(case.function(*case.points[0]), tuple)
    assert len(values) == len(wanted[0][0]) == jacobian.outputs
    for output, found in enumerate(values):
        assert_close(found, [row[0][output] for row in wanted], case, dtype, f"output {output}")
        for at, name in zip(case.floats, jacobian.wrt, strict=True):
            exact = [row[1][output][at] for row in wanted]
            assert_close(jacobian[output, name], exact, case, dtype, f"∂output {output}/∂{name}")


@EVERY
def test_result_kinds(case: Case):
    """An output is bool where Python's is at every point, else an integer, else a float."""
    values = numbers_of(compiled(case, "python")(*arrays(case, "float64")))
    rows = [numbers_of(case.function(*point)) for point in case.points]
    for found, column in zip(values, zip(*rows, strict=True), strict=True):
        assert found.dtype.kind == max((np.asarray(item).dtype.kind for item in column), key="bif".index)


@EVERY
def test_products_agree_bitwise(case: Case):
    function, args = compiled(case, "python"), arrays(case, "float64")
    value, jacobian = function.value_and_jacobian(*args)
    for found, other in zip(numbers_of(value), numbers_of(function(*args)), strict=True):
        np.testing.assert_array_equal(found, other, strict=True)
    alone = function.jacobian(*args)
    for place, block in blocks(jacobian, len(numbers_of(value))).items():
        np.testing.assert_array_equal(block, alone[place], strict=True)


@EVERY
def test_each_argument_alone(case: Case):
    function, args = compiled(case, "python"), arrays(case, "float64")
    together = function.jacobian(*args)
    for name in together.wrt:
        alone = function.jacobian(*args, wrt=name)
        assert alone.wrt == (name,)
        for output in range(together.outputs):
            np.testing.assert_array_equal(alone[output, name], together[output, name], strict=True)


@EVERY
def test_scattered_control_flow(case: Case):
    """Neighbours take different paths; each element is as where the points come in order."""
    function = compiled(case, "cpu")
    order = np.random.default_rng(len(case.name)).integers(0, len(case.points), 203)
    value, jacobian = function.value_and_jacobian(*arrays(case, "float64", order))
    wanted = expected(case, "float64")
    for output, found in enumerate(numbers_of(value)):
        assert_close(found, np.array([float(row[0][output]) for row in wanted])[order], case, "float64", "value")
        for at, name in zip(case.floats, jacobian.wrt, strict=True):
            exact = np.array([row[1][output][at] for row in wanted])[order]
            assert_close(jacobian[output, name], exact, case, "float64", f"∂output {output}/∂{name}")


@pytest.mark.parametrize("case", CORPUS[::9], ids=lambda case: case.name)
def test_products_on_the_cpu(case: Case):
    """The other two products of a sample, which are kernels of their own."""
    function, args = compiled(case, "cpu"), arrays(case, "float64")
    value, jacobian = function.value_and_jacobian(*args)
    for found, other in zip(numbers_of(value), numbers_of(function(*args)), strict=True):
        np.testing.assert_allclose(other, found, rtol=1e-14, atol=1e-14)
    for place, block in blocks(jacobian, len(numbers_of(value))).items():
        np.testing.assert_allclose(function.jacobian(*args)[place], block, rtol=1e-14, atol=1e-14)


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("case", CORPUS[4::12], ids=lambda case: case.name)
def test_compiles_for_cuda(case: Case):
    kernel = compiled(case, "cuda").explain(*arrays(case, "float32"), cc=(9, 0)).cuda
    assert kernel.image
    assert kernel.registers > 0
