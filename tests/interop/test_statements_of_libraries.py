"""`print`, `assert` and `raise` in calls on arrays of other libraries: what Python does for each element in turn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, from_source
from dualbcast.errors import RaisedError


def plain(x, y):
    if x < 0:
        raise ValueError(f"{x} is negative")
    if x > 3.0:
        print("large", x)
    return math.sqrt(x) * y


root = differentiable_broadcast(plain)
GOOD, BAD = np.array([1.0, 4.0, 9.0, 2.0]), np.array([4.0, 1.0, -2.0, 16.0, -1.0])


def by_python(x: np.ndarray, capsys: Any, skipped: Any = False) -> tuple[str, list[float], tuple[int, ...] | None]:
    """What it prints for the elements in order, their values, and the index of the first that raises."""
    values, failed = [], None
    skipped = np.broadcast_to(skipped, x.shape)
    for index in np.ndindex(x.shape):
        try:
            values.append(math.nan if skipped[index] else plain(float(x[index]), 2.0))
        except ValueError:
            failed = index
            break
    return capsys.readouterr().out, values, failed


def check(call: Callable[[Any], Any], array: Any, capsys: Any, skipped: Any = False) -> None:
    """A call with arrays of a library's, which `array` makes: on numbers that do not raise, and on some that do."""
    for x in (GOOD, BAD, BAD[::-1].copy()):
        hidden = skipped(x) if callable(skipped) else skipped
        text, _, failed = by_python(x, capsys, hidden)
        for _ in range(2):
            if failed is None:
                call(array(x))
            else:
                with pytest.raises(ValueError, match="is negative") as caught:
                    call(array(x))
                assert isinstance(caught.value, RaisedError)
                assert caught.value.index == failed
                assert caught.value.inputs == {"x": x[failed], "y": 2.0}
            assert capsys.readouterr().out == text


PRODUCTS: dict[str, Callable[[Any], Any]] = {
    "value": lambda x: root(x, 2.0),
    "value_and_jacobian": lambda x: root.value_and_jacobian(x, 2.0),
    "hessian": lambda x: root.hessian(x, 2.0),
    "jvp": lambda x: root.jvp((x, 2.0), (1.0, None)),
    "vjp": lambda x: root.vjp(x, 2.0)[1](x),
    "value_and_vjp": lambda x: root.value_and_vjp((x, 2.0), x),
    "sum": lambda x: root.sum(x, 2.0, wrt="y"),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("library", ["torch", "jax", "masked", "pandas", "xarray"])
def test_every_product_runs_them_once(library: str, name: str, capsys: Any) -> None:
    arrays: dict[str, Callable[[], Callable[[Any], Any]]] = {
        "torch": lambda: pytest.importorskip("torch").tensor,
        "jax": lambda: pytest.importorskip("jax.numpy").asarray,
        "masked": lambda: np.ma.MaskedArray,
        "pandas": lambda: pytest.importorskip("pandas").Series,
        "xarray": lambda: lambda x: pytest.importorskip("xarray").DataArray(x, dims="a"),
    }
    check(PRODUCTS[name], arrays[library](), capsys)


def test_objects_with_dlpack(capsys: Any) -> None:
    class Exchanged:
        def __init__(self, array: Any) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    check(PRODUCTS["value_and_jacobian"], Exchanged, capsys)


def test_a_masked_element_does_not_come_to_them(capsys: Any) -> None:
    for mask in ((lambda x: x < -1.5), (lambda x: x < 0), (lambda x: x > 5)):
        check(PRODUCTS["value_and_jacobian"], lambda x, mask=mask: np.ma.MaskedArray(x, mask(x)), capsys, mask)
    # Of two arguments, each with a mask of its own.
    x, y = np.ma.MaskedArray([-1.0, 1.0], [True, False]), np.ma.MaskedArray([[1.0], [2.0]], [[False], [True]])
    assert root(x, y).mask.tolist() == [[True, False], [True, True]]
    with pytest.raises(ValueError, match="negative") as caught:
        root(np.ma.MaskedArray([1.0, -1.0], [True, False]), y[::-1])
    assert caught.value.index == (1, 1)  # type: ignore[attr-defined]


def test_whole_arrays() -> None:
    text = """
def f(x, table):
    if table[int(x)] < 0:
        raise ValueError(f"{x} is negative")
    return x * table[int(x)]
"""
    function, table = from_source(text, whole="table"), np.array([1.0, 2.0, -3.0])
    masked = np.ma.MaskedArray([0.5, 7.5, 2.5], [False, True, True])  # 7 is no place
    assert function(masked, table).tolist() == [0.5, None, None]
    masked.mask[2] = False
    calls = [(masked, table)]
    for name, make in (("torch", "tensor"), ("jax.numpy", "asarray")):
        array = getattr(pytest.importorskip(name), make)
        function(array([0.5, 1.5]), array(table))
        calls += [(array([0.5, 1.0, 2.5]), table), (array([0.5, 1.0, 2.5]), array(table))]
    for arguments in calls:
        with pytest.raises(ValueError, match=r"2\.5 is negative") as caught:
            function(*arguments)
        assert caught.value.index == (2,)  # type: ignore[attr-defined]


def test_transforms_of_torch(capsys: Any) -> None:
    torch = pytest.importorskip("torch")
    func = torch.func
    calls = {
        "backward": lambda x: root(x.requires_grad_(), 2.0).sum().backward(),
        "grad": func.grad(lambda x: root(x, 2.0).sum()),
        "jvp": lambda x: func.jvp(lambda x: root(x, 2.0), (x,), (x,)),
        "hessian": func.hessian(lambda x: root(x, 2.0).sum()),
        "vmap": func.vmap(lambda x: root(x, 2.0)),
        "vmap of grad": func.vmap(func.grad(lambda x: root(x, 2.0))),
    }
    for call in calls.values():
        check(call, torch.tensor, capsys)


def test_batches_of_torch_are_the_first_axes(capsys: Any) -> None:
    torch = pytest.importorskip("torch")
    vmap = torch.func.vmap
    table = torch.arange(24.0, dtype=torch.float64).reshape(2, 3, 4)
    y, number = torch.ones(4, dtype=torch.float64), torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    # The axes of `table` are 1 (the outer batch), 2 (the inner one), and 0.
    both = vmap(vmap(lambda x, y: root(x, y), in_dims=(1, 0)), in_dims=(1, None))
    moved = np.moveaxis(table.numpy(), 0, -1)
    text, values, _ = by_python(moved, capsys)
    found = both(table, y)
    assert capsys.readouterr().out == text
    np.testing.assert_allclose(found.numpy().ravel(), np.array(values) / 2)
    table[1, 2, 0] = -5.0
    with pytest.raises(ValueError, match=r"-5\.0 is negative") as caught:
        both(table, y)
    assert caught.value.index == (2, 0, 1)  # type: ignore[attr-defined]
    # A batch of numbers beside one that is not batched.
    with pytest.raises(ValueError, match=r"-1\.0 is negative") as caught:
        vmap(root, in_dims=(0, None))(number, y)
    assert caught.value.index == (2, 0)  # type: ignore[attr-defined]


def test_transforms_of_jax(capsys: Any) -> None:
    jax = pytest.importorskip("jax")
    calls = {
        "grad": jax.grad(lambda x: root(x, 2.0).sum()),
        "jvp": lambda x: jax.jvp(lambda x: root(x, 2.0), (x,), (x,)),
        "vjp": lambda x: jax.vjp(lambda x: root(x, 2.0), x)[1](x),
        "hessian": jax.hessian(lambda x: root(x, 2.0).sum()),
    }
    for call in calls.values():
        check(call, jax.numpy.asarray, capsys)


def test_what_is_traced_does_not_run_them(capsys: Any) -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    compiled = torch.compile(lambda x: root(x, 2.0), backend="aot_eager", fullgraph=True)
    for call, array in ((jax.jit(root), jax.numpy.asarray), (jax.vmap(root), jax.numpy.asarray)):
        assert np.isnan(np.asarray(call(array(BAD), array(BAD)))).tolist() == (BAD < 0).tolist()
    assert compiled(torch.tensor(BAD)).isnan().tolist() == (BAD < 0).tolist()
    assert capsys.readouterr().out == ""


def test_debug_leaves_them_out() -> None:
    torch = pytest.importorskip("torch")
    silent = differentiable_broadcast(plain, debug=False)
    for x in (torch.tensor(BAD), np.ma.MaskedArray(BAD)):
        assert np.isnan(np.asarray(silent(x, 2.0))).tolist() == (BAD < 0).tolist()
