"""Partials as objects: kept, pickled, bound to instances, shown, compiled anew, and never taken for the primal."""

from __future__ import annotations

import copy
import functools
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from models import cell_update

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError
from dualbcast.testing import check_derivatives

X = np.array([0.5, 2.0])


@differentiable_broadcast(backend="python")
def cube(x, y):
    """x³·y."""
    return x * x * x * y


slope = cube.partial("x")


def cubed(x):
    return x * x * x


class Contract:
    """Priced by a power law."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @differentiable_broadcast(backend="python")
    def price(self, spot, time):
        return self.rate * spot**3 * time

    delta = price.partial("spot")
    gamma = delta.partial("spot")
    first = price.partial(0)  # positions count what a caller gives


def test_partials_are_kept() -> None:
    assert cube.partial("x") is slope
    assert slope.partial("y") is cube.partial("x").partial("y")
    assert cube.partial(np.int64(0)) is cube.partial(0)
    assert slope is not cube.partial("y")
    assert isinstance(slope, dualbcast.BroadcastFunction)


def test_threads_get_one_partial() -> None:
    f = differentiable_broadcast(backend="python")(lambda x: x * x)
    found: list[Any] = []
    start = threading.Barrier(4)

    def ask() -> None:
        start.wait()
        found.append(f.partial("x"))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_the_text_of_a_partial() -> None:
    assert repr(slope.partial("y")) == "<BroadcastFunction cube.partial('x').partial('y')>"
    assert repr(Contract(1.0).gamma) == "<BroadcastFunction Contract.price.partial('spot').partial('spot')>"
    assert slope.__name__ == "cube"
    assert str(slope.__signature__) == "(x, y)"  # type: ignore[attr-defined]
    assert not hasattr(slope, "__wrapped__")
    assert not hasattr(slope.partial("x"), "__wrapped__")


@pytest.mark.parametrize("transport", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copies_and_pickles(transport: Any) -> None:
    assert transport(slope) is slope
    assert transport(slope.partial("y")) is slope.partial("y")
    contract = Contract(2.0)
    gamma = transport(contract.gamma)
    contract.rate = 4.0
    np.testing.assert_allclose(gamma(X, 1.0), [6 * 2.0 * 0.5, 6 * 2.0 * 2.0] if transport is not copy.copy else 24 * X)


def test_decorated_again_it_is_still_the_partial() -> None:
    again = differentiable_broadcast(backend="cpu", wrt="y")(slope.partial("x"))
    np.testing.assert_allclose(again(X, 5.0), 30 * X)
    assert again.jacobian(X, 5.0).wrt == ("y",)
    np.testing.assert_allclose(again.jacobian(X, 5.0)["y"], 6 * X)
    assert not hasattr(again, "__wrapped__")
    np.testing.assert_allclose(copy.deepcopy(again)(X, 5.0), 30 * X)
    third = differentiable_broadcast(backend="python")(differentiable_broadcast(cubed).partial("x").partial("x"))
    for other in (third, pickle.loads(pickle.dumps(third)), copy.deepcopy(third), copy.copy(third)):
        assert repr(other) == "<BroadcastFunction cubed.partial('x').partial('x')>"
        np.testing.assert_allclose(other(X), 6 * X)
    bound = differentiable_broadcast(backend="python")(Contract.price).partial("spot")

    class Other:
        rate = 2.0
        delta = bound

    np.testing.assert_allclose(Other().delta(X, 1.0), 6 * X**2)


def test_methods() -> None:
    contract, other = Contract(2.0), Contract(10.0)
    assert contract.delta is contract.delta
    assert contract.delta is contract.price.partial("spot")
    np.testing.assert_allclose(contract.delta(X, 3.0), 18 * X**2)
    np.testing.assert_allclose(contract.first(X, 3.0), 18 * X**2)
    np.testing.assert_allclose(contract.gamma(spot=X, time=1.0), 12 * X)
    np.testing.assert_allclose(other.gamma(X, 1.0), 60 * X)
    contract.rate = 1.0
    np.testing.assert_allclose(contract.gamma(X, 1.0), 6 * X)
    assert isinstance(Contract.delta, dualbcast.BroadcastFunction)


def test_captured_arrays_of_a_method() -> None:
    contract: Any = Contract(np.array([1.0, 2.0]))
    np.testing.assert_allclose(contract.gamma(X, 1.0), 6 * contract.rate * X)
    np.testing.assert_allclose(contract.price.partial("self.rate")(X, 2.0), 2 * X**3)
    np.testing.assert_allclose(contract.delta.jacobian(X, 1.0, wrt="self.rate")["self.rate"], 3 * X**2)


SCALE = 2.0


def test_what_is_captured_may_change() -> None:
    global SCALE
    f = differentiable_broadcast(backend="python")(lambda x: SCALE * x * x)
    partial = f.partial("x")
    assert partial(X).tolist() == [2.0, 8.0]
    SCALE = 10.0
    assert partial(X).tolist() == [10.0, 40.0]
    assert partial.jacobian(X)["x"].tolist() == [20.0, 20.0]
    assert f.vjp(X)[1](np.ones(2))[0].tolist() == [10.0, 40.0]
    assert f.jvp((X,), (1.0,))[1].tolist() == [10.0, 40.0]
    assert f.hessian(X)["x", "x"].tolist() == [20.0, 20.0]
    SCALE = 2.0


def test_static_arguments() -> None:
    @differentiable_broadcast(backend="python", static="power")
    def f(x, power):
        return x**power

    partial = f.partial("x")
    np.testing.assert_allclose(partial(X, 3), 3 * X**2)
    np.testing.assert_allclose(partial(X, power=2), 2 * X)
    np.testing.assert_allclose(partial.partial("x")(X, 4), 12 * X**2)
    with pytest.raises(ArgumentError, match="wrt='power': power is static, so there is no derivative in it"):
        f.partial("power")


def test_a_partial_names_one_argument() -> None:
    @differentiable_broadcast(backend="python")
    def total(*xs):
        return sum(x * x for x in xs)

    with pytest.raises(
        ArgumentError, match=r"^partial\('xs'\) names 2 arguments of this call, xs_0 and xs_1; name one of them$"
    ):
        total.partial("xs")(X, X)
    with pytest.raises(ArgumentError, match=r"^partial\('xs'\) names 0 arguments"):
        total.partial("xs").vjp()
    np.testing.assert_allclose(total.partial("xs")(X), 2 * X)
    np.testing.assert_allclose(total.partial("xs_1")(X, 2 * X), 4 * X)
    with pytest.raises(ArgumentError, match="x is of dtype int64, which carries no derivative"):
        slope(np.arange(3), 1.0)


def test_out_and_the_jacobian_of_a_partial() -> None:
    out = np.empty(2)
    assert slope(X, 2.0, out=out) is out
    np.testing.assert_allclose(out, 6 * X**2)
    value, jacobian = slope.value_and_jacobian(X, np.array([2.0, 3.0]))
    np.testing.assert_allclose(value, 3 * X**2 * [2, 3])
    np.testing.assert_allclose(jacobian["y"], 3 * X**2)
    check_derivatives(slope, X, np.array([2.0, 3.0]))


def test_a_jacobian_beside_a_hessian_can_be_written_again() -> None:
    y = np.array([2.0, 3.0])
    value, jacobian, _ = cube.value_jacobian_and_hessian(X, y)
    again, other = cube.value_and_jacobian(2 * X, y, out=(value, jacobian))
    assert again is value
    assert other["x"] is jacobian["x"]
    np.testing.assert_allclose(jacobian["x"], 12 * X**2 * y)


# --- looking inside --------------------------------------------------------------------------------------------------

SHOWN = ["value", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian", "jvp", "vjp", "hvp"]


@pytest.mark.parametrize("product", SHOWN)
@pytest.mark.parametrize("args", [(np.ones((3, 4)), np.ones(4)), ("float32", "float32"), ("float64", 2.0)], ids=str)
def test_every_product_can_be_explained_and_inspected(product: Any, args: Any) -> None:
    found = cube.explain(*args, product=product)
    stored = {
        "value": 1,
        "jacobian": 2,
        "value_and_jacobian": 3,
        "hessian": 2,
        "value_jacobian_and_hessian": 5,
        "jvp": 2,
        "vjp": 2,
        "hvp": 2,
    }
    assert len(found.outputs) == stored[product]  # ∂²/∂y² is zero everywhere
    assert found.arithmetic > 0
    assert all(name in cube.inspect_ir(*args, product=product) for name in found.outputs)
    text = cube.inspect_source(*args, product=product)
    compile(text, "kernel", "exec")
    assert "def " in text


@pytest.mark.parametrize("product", ["jvp", "vjp", "hvp", "hessian"])
def test_machine_code_of_products(product: Any) -> None:
    f = differentiable_broadcast(cube.__wrapped__)
    assert "define" in f.inspect_llvm("float64", "float64", product=product)
    assert f.inspect_asm("float64", "float64", product=product)


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("product", ["jvp", "vjp", "hvp", "hessian"])
def test_products_compile_for_cuda(product: Any) -> None:
    wrt = ("c", "f", "i", "g")
    kernel = differentiable_broadcast(cell_update).explain(*["float32"] * 6, wrt=wrt, product=product, cc=(9, 0)).cuda
    assert kernel.image
    assert kernel.spill_loads + kernel.spill_stores == 0
    assert ".f64" not in kernel.ptx()


def test_what_is_inspected_is_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    from dualbcast.runtime import interpreter

    compile_kernel = interpreter.PythonKernel

    def watched(source: Any) -> Any:
        texts.append(source.text)
        return compile_kernel(source)

    monkeypatch.setattr(interpreter, "PythonKernel", watched)
    f = differentiable_broadcast(backend="python")(cube.__wrapped__)
    x, y = np.ones((3, 4)), np.ones(4)
    runs = {
        "jvp": lambda: f.jvp((x, y), (x, y)),
        "hvp": lambda: f.hvp((x, y), (x, y)),
        "vjp": lambda: f.vjp(x, y)[1](x),
        "hessian": lambda: f.hessian(x, y),
    }
    for product, run in runs.items():
        run()
        # The backends' texts differ in their first lines.
        inspected = f.inspect_source(x, y, product=product)
        assert texts[-1].split("def ", 1)[1] == inspected.split("def ", 1)[1]


# --- never the primal in its place -----------------------------------------------------------------------------------


bound_slope = functools.partial(slope, y=2.0)


def calls(x):
    return 1.0 + slope(x, 2.0)


def calls_by_way(x):
    return bound_slope(x)


def calls_made(x):
    return cube.partial("x")(x, 2.0)


CONTRACT = Contract(2.0)


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_a_partial_inside_a_scalar_function_is_the_partial(backend: Any) -> None:
    for function, value, derivative in [
        (calls, 1 + 6 * X**2, 12 * X),
        (calls_by_way, 6 * X**2, 12 * X),
    ]:
        found, jacobian = differentiable_broadcast(backend=backend)(function).value_and_jacobian(X)
        np.testing.assert_allclose(found, value, rtol=1e-14)
        np.testing.assert_allclose(jacobian["x"], derivative, rtol=1e-14)


second = slope.partial("x")


def calls_second(x):
    # 6 x y at y = x, and 12 x times 12 x².
    return second(x, x) + CONTRACT.gamma(x, 1.0) * CONTRACT.delta(x, 2.0)


def test_partials_of_partials_and_of_methods_inside_a_scalar_function() -> None:
    found, jacobian = differentiable_broadcast(backend="python")(calls_second).value_and_jacobian(X)
    np.testing.assert_allclose(found, 6 * X**2 + 12 * X * 12 * X**2, rtol=1e-14)
    np.testing.assert_allclose(jacobian["x"], 12 * X + 3 * 144 * X**2, rtol=1e-14)


def test_making_a_partial_inside_a_scalar_function_is_an_error() -> None:
    with pytest.raises(CompileError) as caught:
        differentiable_broadcast(calls_made)(X)
    assert caught.value.location.filename == __file__


@pytest.mark.parametrize(
    "make",
    [
        lambda: functools.partial(slope, 2.0),
        lambda: functools.partial(slope.partial("y"), y=2.0),
        lambda: staticmethod(slope),
        lambda: type("Object", (), {"__call__": slope})(),
        lambda: functools.partial(Contract(2.0).delta, X),
    ],
)
def test_a_partial_by_way_of_another_object_cannot_be_decorated(make: Any) -> None:
    with pytest.raises(ArgumentError, match="cannot be decorated by way of another object"):
        differentiable_broadcast(make())


def test_a_partial_of_a_partly_given_function() -> None:
    f = differentiable_broadcast(backend="python")(functools.partial(cube, y=2.0)).partial("x")
    np.testing.assert_allclose(f(X), 6 * X**2)
    np.testing.assert_allclose(f.partial("x")(X), 12 * X)


def test_the_primal_still_inlines() -> None:
    f = differentiable_broadcast(backend="python")(lambda x: cube(x, math.sin(x)))
    np.testing.assert_allclose(f.partial("x")(X), 3 * X**2 * np.sin(X) + X**3 * np.cos(X))
