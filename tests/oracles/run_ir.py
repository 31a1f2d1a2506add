"""The IR of the cases of the corpus, and functions of the IR run by Python."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from corpus import Case

from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program.derived_functions import jacobian_of
from dualbcast.program.pipeline import kernel_source
from dualbcast.runtime import interpreter

KINDS = {float: "float", int: "int", bool: "bool"}


DTYPES = {"float": "float64", "int": "int64", "bool": "bool"}


@cache
def lowered(case: Case) -> Function:
    return lower(case.function, [KINDS[type(arg)] for arg in case.points[0]]).function


@cache
def dual(case: Case) -> Function:
    return jacobian_of(lowered(case), case.floats).function


def source(function: Function) -> KernelSource:
    """The text of a function whose arguments and results are contiguous arrays."""
    inputs = [DTYPES[param.kind] for param in function.params]
    outputs = [DTYPES[output.value.kind] for output in function.outputs]
    layout = Layout(1, ("1",), (0,) * (len(inputs) + len(outputs)))
    return kernel_source(function, layout, "float64", inputs, outputs, "python")


def execute(function: Function, columns: list[Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a function for each row of the columns."""
    text = source(function)
    inputs = [np.array(column, dtype) for column, dtype in zip(columns, text.inputs, strict=True)]
    outputs = [np.zeros(len(inputs[0]), dtype) for dtype in text.outputs]
    stored = [array.view(np.uint8) if array.dtype == bool else array for array in (*inputs, *outputs)]
    size = len(inputs[0])
    interpreter.PythonKernel(text).launch(size, (size,), stored)
    return outputs
