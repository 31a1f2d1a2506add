"""Launches on addresses: the bits of a call on arrays, on one thread and on several, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.runtime.arguments import host_addresses
from dualbcast.runtime.cpu.address_call import AddressCall
from dualbcast.runtime.cpu.kernel import CpuKernel

RNG = np.random.default_rng(5)


@differentiable_broadcast
def wave(x, y):
    return math.sin(x) * y, x + y


def prepared(*arrays: Any) -> tuple[AddressCall, CpuKernel, list[Any]]:
    """The call on addresses for arrays of these forms, its kernel, and arrays for the outputs."""
    specialisation, values = wave._dispatch.find(arrays, {}, None)
    call = specialisation.prepare("value", values)
    itemsizes = tuple([array.itemsize for array in arrays])
    outputs = [np.full_like(y, np.nan) for y in call.plan.outputs]
    return AddressCall(call.cpu_kernel(), call.plan.geometry, itemsizes, 2), call.cpu_kernel(), outputs


@pytest.mark.parametrize("shape", [(4, 4), (40, 50), (900, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_are_those_of_a_call_on_arrays(shape: tuple[int, ...], dtype: Any, threads: int) -> None:
    x, y = RNG.standard_normal(shape).astype(dtype), RNG.standard_normal(shape[1:]).astype(dtype)
    call, _, outputs = prepared(x, y)
    with dualbcast.num_threads(threads):
        for _ in range(3):
            for each in outputs:
                each.fill(np.nan)
            assert call.run(host_addresses((x, y, *outputs)))
            for ours, theirs in zip(outputs, wave(x, y), strict=True):
                assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("length", [8, 100_000])
def test_a_misaligned_input_is_refused_and_nothing_runs(length: int) -> None:
    x = RNG.standard_normal(length)
    call, kernel, outputs = prepared(x, x)
    if length > 1000:
        kernel.pace.learn(100.0)  # so slow a kernel is worth threads
    first, *rest = host_addresses((x, x, *outputs))
    assert not call.run((first + 4, *rest))
    assert all(np.isnan(each).all() for each in outputs)


def test_an_endless_kernel_can_be_stopped() -> None:
    import threading
    import time

    @differentiable_broadcast
    def endless(x):
        while x > 0:
            x = x + 1.0
        return x

    x = np.ones(4)
    specialisation, values = endless._dispatch.find((x,), {}, None)
    prepared = specialisation.prepare("value", values)
    call = AddressCall(prepared.cpu_kernel(), prepared.plan.geometry, (8,), 1)
    threading.Thread(target=lambda: (time.sleep(0.3), dualbcast.cancel())).start()
    with pytest.raises(dualbcast.KernelCancelled):
        call.run(host_addresses((x, np.empty(4))))
