"""The HM-LSTM cell update's derivatives in PyTorch, JAX and TensorFlow, each as its users would write and compile it.

A framework is imported only where peers are asked for; one that is not installed is left out.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bench.paper.implementation import Implementation, Mode
from dualbcast.cli.measure import Device

__all__ = ["NAMES", "frameworks", "hlo_launches", "versions"]

NAMES = ("torch", "jax", "tensorflow")
_TOLERANCE = 64.0  # ulp: their tanh and their logistic function are their own
_NO_KERNEL = {"parameter", "tuple", "get-tuple-element", "bitcast", "constant"}

Prepare = Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]


def versions() -> dict[str, str]:
    """The versions of those that are installed."""
    installed = {}
    for name in NAMES:
        module = _module(name)
        if module is not None:
            installed[name] = str(module.__version__)
    return installed


def frameworks(device: Device, mode: Mode, moved: int) -> list[Implementation]:
    """The implementations of installed frameworks; `moved` is the bytes of a kernel that touches all arrays."""
    makers = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}
    forms: list[Implementation] = []
    for name, make in makers.items():
        module = _module(name)
        if module is None:
            continue
        try:
            forms += make(module, device, mode, moved)
        except Exception as error:  # a framework that does not fit the machine may raise anything
            forms.append(Implementation(name, _failing(error), None, lambda: None, _TOLERANCE, None, _as_numpy))
    return [replace(each, is_peer=True) for each in forms]


def _failing(error: Exception) -> Prepare:
    """For one that cannot even be set up: it fails when it is to run, as others may, and is reported with them."""

    def prepare(_arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        raise error

    return prepare


def hlo_launches(text: str) -> int:
    """How many kernels a compiled program of XLA launches: the operations of its entry computation but for bookkeeping.

    Examples
    --------
    >>> hlo_launches('''
    ... %fused (p: f32[4]) -> f32[4] {
    ...   ROOT %tanh = f32[4]{0} tanh(f32[4]{0} %p)
    ... }
    ... ENTRY %main (x: f32[4]) -> (f32[4], f32[4]) {
    ...   %x = f32[4]{0} parameter(0)
    ...   %one = f32[4]{0} fusion(f32[4]{0} %x), kind=kLoop, calls=%fused
    ...   ROOT %both = (f32[4]{0}, f32[4]{0}) tuple(%one, %one)
    ... }
    ... ''')
    1
    """
    entry = text[text.index("ENTRY ") :]
    lines = entry[: entry.index("\n}")].splitlines()[1:]
    # `%name = type operation(operands)`, where the type of several results has parentheses of its own.
    operations = [re.search(r"= (?:\(.*?\)|\S+) ([\w-]+)\(", line) for line in lines]
    return sum(match is not None and match[1] not in _NO_KERNEL for match in operations)


def _module(name: str) -> Any:
    # Unless told otherwise JAX and TensorFlow take most of a GPU's memory when they start.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _update(where: Any, sigmoid: Any, tanh: Any) -> Callable[..., Any]:
    def cell(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        fresh = sigmoid(i) * tanh(g)
        return where(z == 1, fresh, where(zb == 0, c, sigmoid(f) * c + fresh))

    return cell


def _torch(torch: Any, device: Device, _mode: Mode, moved: int) -> list[Implementation]:
    if device.threads:
        torch.set_num_threads(device.threads)
    cell = _update(torch.where, torch.sigmoid, torch.tanh)

    def both(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any, *given: Any) -> Any:
        value, pullback = torch.func.vjp(lambda *gates: cell(*gates, z, zb), c, f, i, g)
        pulled = pullback(given[0] if given else torch.ones_like(value))
        return (value, *pulled) if given else pulled

    def prepared(function: Callable[..., Any]) -> Prepare:
        def prepare(arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
            # Without a copy, on either device.
            tensors = [torch.from_dlpack(array) for array in arrays]
            return lambda: function(*tensors)

        return prepare

    def host(tensor: Any) -> Any:
        return tensor.detach().cpu().numpy()

    torch.compiler.reset()
    compiled = torch.compile(both, fullgraph=True, dynamic=False)
    metrics = importlib.import_module("torch._inductor.metrics")
    metrics.reset()
    return [
        Implementation(
            "torch.compile",
            prepared(compiled),
            moved,
            lambda: metrics.generated_kernel_count or None,
            _TOLERANCE,
            None,
            host,
        ),
        Implementation("torch, eager", prepared(both), None, lambda: None, _TOLERANCE, None, host),
    ]


def _jax(jax: Any, device: Device, mode: Mode, moved: int) -> list[Implementation]:
    numpy = jax.numpy
    cell = _update(numpy.where, jax.nn.sigmoid, numpy.tanh)

    @jax.jit  # type: ignore[untyped-decorator]
    def both(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any, *given: Any) -> Any:
        value, pullback = jax.vjp(lambda *gates: cell(*gates, z, zb), c, f, i, g)
        pulled = pullback(given[0] if given else numpy.ones_like(value))
        return (value, *pulled) if given else pulled

    on_gpu = device.backend == "cuda"
    last: list[Any] = [None]

    def prepare(arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        own = [_of_jax(jax, array, on_gpu) for array in arrays]

        def call() -> Sequence[Any]:
            last[0] = both(*own)
            return last[0] if on_gpu else jax.block_until_ready(last[0])  # type: ignore[no-any-return]

        return call

    def launches() -> int:
        shapes = [jax.ShapeDtypeStruct((64, 64), numpy.float32)] * 4
        controls = [jax.ShapeDtypeStruct((64, 1), numpy.float32)] * 2
        bar = [] if mode == "derivatives" else shapes[:1]
        return hlo_launches(both.lower(*shapes, *controls, *bar).compile().as_text())

    wait = (lambda: jax.block_until_ready(last[0])) if on_gpu else None
    return [Implementation("jax.jit", prepare, moved, launches, _TOLERANCE, wait, _as_numpy)]


def _of_jax(jax: Any, array: Any, on_gpu: bool) -> Any:
    return jax.dlpack.from_dlpack(array) if on_gpu else jax.device_put(array, jax.devices("cpu")[0])


def _as_numpy(array: Any) -> Any:
    return np.asarray(array)


def _tensorflow(tensorflow: Any, device: Device, _mode: Mode, moved: int) -> list[Implementation]:
    cell = _update(tensorflow.where, tensorflow.sigmoid, tensorflow.tanh)

    @tensorflow.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def both(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any, *given: Any) -> Any:
        with tensorflow.GradientTape() as tape:
            tape.watch((c, f, i, g))
            value = cell(c, f, i, g, z, zb)
        pulled = tape.gradient(value, [c, f, i, g], output_gradients=given[0] if given else None)
        return (value, *pulled) if given else pulled

    on_gpu = device.backend == "cuda"
    last: list[Any] = [None]

    def prepare(arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        own = [_of_tensorflow(tensorflow, array, on_gpu) for array in arrays]

        def call() -> Sequence[Any]:
            last[0] = both(*own)
            return last[0]  # type: ignore[no-any-return]

        return call

    def wait() -> None:
        for tensor in last[0]:
            tensor[:1, :1].numpy()  # a copy to the host waits for all earlier work on the stream

    def host(tensor: Any) -> Any:
        return tensor.numpy()

    own_wait = wait if on_gpu else None
    return [Implementation("TensorFlow, XLA", prepare, moved, lambda: None, _TOLERANCE, own_wait, host)]


def _of_tensorflow(tensorflow: Any, array: Any, on_gpu: bool) -> Any:
    if on_gpu:
        return tensorflow.experimental.dlpack.from_dlpack(array.__dlpack__())
    with tensorflow.device("CPU:0"):
        return tensorflow.constant(array)
