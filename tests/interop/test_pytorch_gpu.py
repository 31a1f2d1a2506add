"""Calls on tensors on a GPU, by CuPy; and what of them can be seen without one."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError

torch = pytest.importorskip("torch")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch has no GPU")
RNG = np.random.default_rng(0)


@differentiable_broadcast
def f(x, y):
    return x * math.exp(y) if x > 0 else y * y * x


def pair(requires_grad: bool = True, dtype: Any = torch.float64) -> list[tuple[Any, Any]]:
    """The same arguments on the CPU and on the GPU."""
    hosts = [torch.from_numpy(RNG.standard_normal(shape)).to(dtype) for shape in ((64, 33), (33,))]
    return [tuple([x.to(where).requires_grad_(requires_grad) for x in hosts]) for where in ("cpu", "cuda")]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_results_and_gradients_are_those_of_the_cpu(dtype: Any) -> None:
    host, device = pair(dtype=dtype)
    values = [f(*args) for args in (host, device)]
    assert values[1].device == device[0].device
    torch.testing.assert_close(values[1].cpu(), values[0])
    gradients = [torch.autograd.grad(y.sum(), args) for y, args in zip(values, (host, device), strict=True)]
    torch.testing.assert_close([g.cpu() for g in gradients[1]], list(gradients[0]))


@pytest.mark.gpu
@needs_gpu
def test_gradcheck_on_the_gpu() -> None:
    _, (x, y) = pair()
    assert torch.autograd.gradcheck(f, (x[:3, :4], y[:4]), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(f, (x[:3, :4], y[:4]))


@pytest.mark.gpu
@needs_gpu
def test_kernels_run_on_the_current_stream() -> None:
    _, (x, y) = pair(requires_grad=False)
    expected = f(x, y)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        large = torch.randn(4000, 4000, device="cuda")
        for _ in range(20):
            large = large @ large / 100  # keeps the stream busy, so that a kernel on another one would be too early
        moved = x + 0 * large[0, 0].nan_to_num(0.0, 0.0, 0.0)
        found = f(moved, y)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(found, expected)


@pytest.mark.gpu
@needs_gpu
def test_memory_is_shared_and_devices_are_not_mixed() -> None:
    host, device = pair(requires_grad=False)
    before = f(*device)
    device[0].mul_(0.5)
    assert not torch.equal(f(*device), before)
    with pytest.raises(ArgumentError, match=r"x is on cuda:0 and y is on cpu.*y\.to\('cuda:0'\)"):
        f(device[0], host[1])


@pytest.mark.gpu
@needs_gpu
def test_torch_compile_on_the_gpu() -> None:
    _, (x, y) = pair()
    run = torch.compile(lambda x, y: f(x, y).sin().sum(), fullgraph=True)
    both = run(x, y), f(x, y).sin().sum()
    torch.testing.assert_close(*both)
    torch.testing.assert_close(*[torch.autograd.grad(each, (x, y)) for each in both])


def test_a_call_on_a_gpu_has_its_device_and_pytorchs_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: a CuPy that writes down what it is asked for."""
    from dualbcast.interop.pytorch.memory import on_stream

    seen: list[Any] = []

    class Context:
        def __init__(self, *given: Any) -> None:
            self.given = given

        def __enter__(self) -> None:
            seen.append(("enter", *self.given))

        def __exit__(self, *raised: object) -> None:
            seen.append(("exit", *self.given))

    cuda = SimpleNamespace(
        Device=lambda device: Context("device", device),
        ExternalStream=lambda pointer, device: Context("stream", pointer, device),
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=77 + device.index))
    with on_stream(torch.device("cuda", 1)):
        seen.append("call")
    device, stream = ("device", 1), ("stream", 78, 1)
    assert seen == [("enter", *device), ("enter", *stream), "call", ("exit", *stream), ("exit", *device)]
    seen.clear()
    with on_stream(torch.device("cpu")):
        assert seen == []
