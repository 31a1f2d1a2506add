"""How XLA runs the primitive: on a CPU and on an NVIDIA GPU by a handler that calls a kernel, otherwise by Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import mlir

from dualbcast.errors import BackendError
from dualbcast.interop import xla
from dualbcast.interop.jax_primitive import PRIMITIVE, Application, abstract, runs_in_python
from dualbcast.program.outputs import sum_to

_TARGET, _CUDA_TARGET = "dualbcast_1", "dualbcast_cuda_1"


@cache
def _register(platform: str) -> None:
    """Make the handler of a platform known to XLA."""
    if platform == "cpu":
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(xla.handler()), platform="cpu")
    else:
        from dualbcast.interop import xla_cuda

        jax.ffi.register_ffi_target(_CUDA_TARGET, jax.ffi.pycapsule(xla_cuda.handler()), platform="CUDA")


def _on_cpu(*operands: Any, application: Application) -> list[Any]:
    """The outputs by a kernel of the CPU, which is compiled."""
    element = application.element
    if runs_in_python(element):
        return _on_host(*operands, application=application)
    if element.options.backend == "cuda":
        raise BackendError("the cuda backend cannot use JAX's arrays on a CPU; choose backend='auto'")
    arguments = tuple([(jnp.shape(operand), np.dtype(operand.dtype)) for operand in operands])
    prepared = xla.prepare(element, arguments, application.dtypes, application.sums, application.compute)
    if prepared.launch is not None:
        _register("cpu")
    given = [
        jnp.broadcast_to(operand, prepared.shape) if at in prepared.expanded else operand
        for at, operand in enumerate(operands)
    ]
    return _called(_TARGET, prepared, given)


def _called(target: str, prepared: xla.Prepared, operands: Sequence[Any]) -> list[Any]:
    """The outputs of a launch, by the handler that is registered under the name `target`."""
    results: Sequence[Any] = ()
    if prepared.launch is not None:
        forms = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in prepared.launch.results]
        results = jax.ffi.ffi_call(target, forms)(*operands, launch=np.int64(prepared.launch.name))
    outputs: list[Any] = []
    for shape, dtype, place in prepared.outputs:
        if isinstance(place, float):
            outputs.append(jnp.full(shape, place, dtype))
            continue
        assert prepared.launch is not None
        output, axes = results[place], prepared.launch.results[place].axes
        output = output if axes is None else jnp.transpose(output, axes)
        outputs.append(output.reshape(shape).astype(dtype))
    return outputs


def _on_cuda(*operands: Any, application: Application) -> list[Any]:
    """The outputs by a CUDA kernel; sums of them by XLA."""
    element, shapes = application.element, application.shapes
    if runs_in_python(element):
        return _on_host(*operands, application=application)
    if element.options.backend == "cpu":
        raise BackendError("the cpu backend cannot use JAX's arrays on a GPU; choose backend='auto'")
    from dualbcast.interop import xla_cuda

    devices = jax.local_devices(backend="cuda")
    major, minor = min(tuple(map(int, device.compute_capability.split("."))) for device in devices)
    arguments = tuple([(jnp.shape(operand), np.dtype(operand.dtype)) for operand in operands])
    # The terms of sums are not rounded to less than the dtype of the arithmetic.
    compute = np.dtype(application.compute)
    dtypes = tuple([d if shape is None else compute for d, shape in zip(application.dtypes, shapes, strict=True)])
    numbers = tuple(sorted(device.local_hardware_id for device in devices))
    prepared = xla_cuda.prepare(element, arguments, dtypes, application.compute, numbers, (major, minor))
    if prepared.launch is not None:
        _register("CUDA")
    outputs = _called(_CUDA_TARGET, prepared, operands)
    return [
        output if shape is None else sum_to(output, shape).astype(dtype)
        for output, shape, dtype in zip(outputs, shapes, application.dtypes, strict=True)
    ]


def _on_host(*operands: Any, application: Application) -> list[Any]:
    """The outputs by a call from XLA into Python."""
    element, dtypes, sums = application.element, application.dtypes, application.sums
    shapes = [aval.shape for aval in abstract(*operands, application=application)]

    def call(*values: Any) -> tuple[Any, ...]:
        arrays = element.parts(tuple(map(np.asarray, values)), dtypes, sums)
        return tuple(map(np.asarray, arrays))

    forms = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return list(jax.pure_callback(call, tuple(forms), *operands))


def _elsewhere(*_: Any, application: Application) -> list[Any]:
    raise BackendError(
        f"{application.element.label} is compiled by JAX for a device that is neither a CPU nor an NVIDIA GPU, and "
        "dualbcast has no kernels for others. Put the arrays on the CPU: jax.device_put(x, jax.devices('cpu')[0])"
    )


mlir.register_lowering(PRIMITIVE, mlir.lower_fun(_on_cpu, multiple_results=True), platform="cpu")
mlir.register_lowering(PRIMITIVE, mlir.lower_fun(_on_cuda, multiple_results=True), platform="cuda")
mlir.register_lowering(PRIMITIVE, mlir.lower_fun(_elsewhere, multiple_results=True))
