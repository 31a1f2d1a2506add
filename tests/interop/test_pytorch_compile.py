"""`torch.compile` traces calls without a graph break, and gives the results of calls that are not compiled."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS
from corpus_calls import arrays, compiled
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError
from dualbcast.special import sigmoid

torch = pytest.importorskip("torch")
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

RNG = np.random.default_rng(1)


@differentiable_broadcast
def gate(x, slope, scale=1.0):
    return scale * x * sigmoid(x) if x > -1 else slope * x


@differentiable_broadcast
def wrong(x):
    return x.nothing


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def random(*shape: int, requires_grad: bool = True) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape)).requires_grad_(requires_grad)


def full_graph(function: Any, backend: str = "aot_eager") -> Any:
    return torch.compile(function, fullgraph=True, backend=backend)


BRANCHES_AND_LOOPS = ("hm_lstm", "smoothstep", "newton_root", "guarded", "while_true", "nested_loops")


@pytest.mark.parametrize(
    "case", sampled([case for case in CORPUS if case.name in BRANCHES_AND_LOOPS], 2), ids=lambda case: case.name
)
def test_functions_with_branches_and_loops_are_those_of_eager(case: Any) -> None:
    function = compiled(case, "auto")
    args = [torch.from_numpy(x) for x in arrays(case, "float64")]
    args = [x.requires_grad_() if x.is_floating_point() else x for x in args]
    inputs = [x for x in args if x.requires_grad]

    def loss(*args: Any) -> Any:
        outputs = function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return sum([y.square().sum() for y in outputs if y.is_floating_point()])

    both = full_graph(loss)(*args), loss(*args)
    assert torch.equal(*both)
    for ours, theirs in zip(*[torch.autograd.grad(y, inputs) for y in both], strict=True):
        assert torch.equal(ours, theirs)


def test_enough_of_the_corpus_is_compiled() -> None:
    assert sum(case.name in BRANCHES_AND_LOOPS for case in CORPUS) >= 5


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_training_step(backend: str) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.act = torch.nn.Linear(3, 4, dtype=torch.float64), gate
            self.slope = torch.nn.Parameter(torch.full((4,), 0.1, dtype=torch.float64))

        def forward(self, x: Any) -> Any:
            return self.act(self.linear(x), self.slope, scale=2.0)

    x, target = random(5, 3, requires_grad=False), random(5, 4, requires_grad=False)
    weights = []
    for is_compiled in (True, False):
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: Any, target: Any, model: Any = model) -> Any:
            return (model(x) - target).square().mean()

        run = full_graph(step, backend) if is_compiled else step
        for _ in range(3):
            optimizer.zero_grad()
            run(x, target).backward()
            optimizer.step()
        weights.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(*weights)


def test_shapes_and_numbers_may_change() -> None:
    run = full_graph(lambda x, slope, scale: gate(x * 1.0, slope, scale) + 1.0)
    for rows, scale in ((3, 1.0), (5, 2.0), (7, 3.0), (9, 4.5)):
        x, slope = random(rows, 4), random(4)
        both = run(x, slope, scale), gate(x * 1.0, slope, scale) + 1.0
        assert torch.equal(*both)
        for ours, theirs in zip(*[torch.autograd.grad(y.sum(), (x, slope)) for y in both], strict=True):
            assert torch.equal(ours, theirs)


def test_broadcast_and_transposed_arguments() -> None:
    x, slope = random(4, 3).T, random(1, 4)
    both = full_graph(lambda x, slope: gate(x, slope))(x, slope), gate(x, slope)
    assert torch.equal(*both)


def test_transforms_inside() -> None:
    x, slope = random(3, 4, requires_grad=False), random(4, requires_grad=False)
    for transform in (
        torch.func.grad,
        lambda f: torch.vmap(torch.func.grad(f), in_dims=(0, None)),
        lambda f: lambda x, slope: torch.func.jvp(f, (x, slope), (x, slope))[1],
    ):
        function = transform(lambda x, slope: gate(x, slope).sin().sum())
        torch.testing.assert_close(full_graph(function)(x, slope), function(x, slope))


def test_products_that_are_tensors() -> None:
    x, slope = random(3, 4), random(4)

    def products(x: Any, slope: Any) -> Any:
        value, tangent = gate.jvp((x, slope), (x, None))
        again, (dx, dslope) = gate.value_and_vjp((x, slope), x)
        return value, tangent, again, dx, dslope

    torch.testing.assert_close(full_graph(products)(x, slope), products(x, slope))


def test_another_function_in_the_same_place_is_compiled_anew() -> None:
    def apply(f: Any, x: Any) -> Any:
        return f(x) * 2.0

    run, x = full_graph(apply), random(3)
    for factor in (1.0, 2.0, 3.0):
        f = differentiable_broadcast(lambda x, factor=factor: x * factor)
        assert torch.equal(run(f, x), apply(f, x))


def test_errors_are_shown() -> None:
    x = random(3)
    with pytest.raises(
        Exception, match=r"CompileError: .*test_pytorch_compile\.py:\d+:\d+: a number has no nothing"
    ) as error:
        full_graph(lambda x: wrong(x))(x)
    assert "return x.nothing\n" in str(error.value)
    with pytest.raises(Exception, match=r"ShapeError: .* x \(3,\), slope \(4,\)"):
        full_graph(lambda x, slope: gate(x, slope))(x, random(4))
    with pytest.raises(CompileError, match="a number has no nothing"):
        torch.compile(lambda x: wrong(x) + 1.0, backend="eager")(x)


def test_a_jacobian_breaks_the_graph_and_is_right() -> None:
    x = random(3, 4)

    def slopes(x: Any) -> Any:
        return gate.value_and_jacobian(x, 0.5)[1]["x"] * 2.0

    assert torch.equal(torch.compile(slopes, backend="eager")(x), slopes(x))
    with pytest.raises(Exception, match=r"value_and_jacobian|does not return tensors alone"):
        full_graph(slopes)(x)


def test_captured_arrays_are_in_the_graph() -> None:
    weights = np.array([1.0, 2.0, 3.0])

    @differentiable_broadcast
    def weighted(x):
        return math.sin(x) * weights

    x = random(2, 3)
    run = full_graph(lambda x: weighted(x))
    for _ in range(2):
        both = run(x), weighted(x)
        assert torch.equal(*both)
        gradients = [torch.autograd.grad(y.sum(), x)[0] for y in both]
        assert torch.equal(*gradients)
        weights *= 2.0  # its contents are read at every call


def test_the_operator_is_registered_as_pytorch_wants_it() -> None:
    from dualbcast.interop.pytorch.operations import operation
    from dualbcast.interop.pytorch.operator import key_of, split

    x, slope = random(3, 1), random(4)
    specialisation, values = gate._dispatch.find((x, slope), {"scale": 2.0}, None)
    key = key_of(operation(specialisation.element, specialisation.dtypes))
    torch.library.opcheck(torch.ops.dualbcast.apply.default, (key, *split(values)))
    out = torch.ops.dualbcast.apply(key, *split(values))[0]
    for ours, theirs in zip(
        torch.autograd.grad(out.sum(), (x, slope)),
        torch.autograd.grad(gate(x, slope, 2.0).sum(), (x, slope)),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    batched = torch.vmap(lambda x: torch.ops.dualbcast.apply(key, "ttf", [x, slope.detach()], [2.0], [])[0])(x.detach())
    assert torch.equal(batched, gate(x, slope, 2.0).detach())


def test_exported_programs_have_the_operator() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return gate(x, 0.5) + 1.0

    x = random(3, 4, requires_grad=False)
    program = torch.export.export(Model(), (x,))
    assert "dualbcast.apply" in str(program.graph)
    assert torch.equal(program.module()(x), gate(x, 0.5) + 1.0)


@pytest.mark.slow
def test_another_process_may_use_the_graphs_on_disk(tmp_path: Path) -> None:
    """PyTorch keeps compiled graphs on disk; the keys in them mean the same in another process."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys, torch
            from dualbcast import differentiable_broadcast

            if sys.argv[1] == "first":
                other = differentiable_broadcast(lambda x: x * 3.0)
                torch.compile(lambda x: other(x), fullgraph=True)(torch.ones(3))

            @differentiable_broadcast
            def f(x, y):
                return x * y if x > 0 else y * y

            x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
            y = torch.tensor([4.0, 5.0, 6.0], requires_grad=True)
            torch.compile(lambda x, y: f(x, y).sum(), fullgraph=True)(x, y).backward()
            assert x.grad.tolist() == [4.0, 0.0, 6.0], x.grad
            assert y.grad.tolist() == [1.0, 10.0, 3.0], y.grad
            """
        )
    )
    for name in ("first", "second", "third"):
        subprocess.run(
            [sys.executable, str(program), name],
            check=True,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        )


def composed(x: Any, slope: Any) -> Any:
    """`gate` in operations of PyTorch's."""
    return torch.where(x > -1, x * torch.sigmoid(x), slope * x)


def test_tracers_see_calls_that_eager_has_made_before() -> None:
    """The guards of calls of a known form do not see that PyTorch traces: the graphs would have no call in them."""
    x, slope, tangent = (random(3, 2, requires_grad=False) for _ in range(3))
    expected, wanted = composed(x * 2, slope), torch.func.jvp(composed, (x, slope), (tangent, slope))[1]
    for _ in range(4):
        gate(x, slope)
        torch.func.jvp(gate, (x, slope), (tangent, slope))

    def ours(x: Any, slope: Any) -> Any:
        return gate(x, slope)

    traced = torch.jit.trace(ours, (x, slope))
    for graph in (traced, make_fx(ours)(x, slope), make_fx(ours, pre_dispatch=True)(x, slope)):
        torch.testing.assert_close(graph(x * 2, slope), expected)
    torch.testing.assert_close(torch.func.linearize(gate, x, slope)[1](tangent, slope), wanted)
    slopes = make_fx(torch.func.grad(lambda x: gate(x, slope).sum()))(x)
    torch.testing.assert_close(slopes(x * 2), torch.func.grad(lambda x: composed(x, slope).sum())(x * 2))
