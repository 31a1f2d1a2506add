"""Arrays of every kind as arguments: each gives the numbers that NumPy's give, in its own kind, for all products."""

from __future__ import annotations

import array
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualbcast import (
    ArgumentError,
    CompileError,
    DTypeError,
    NonFiniteError,
    ShapeError,
    differentiable_broadcast,
)
from dualbcast.adapters import adapter_for
from dualbcast.foreign_objects import as_plain

X = np.array([-0.5, 0.25, 1.5, 2.0])
Y = np.array([2.0, -1.0, 0.5, 3.0])
# The mask of masked arrays.
MASK = np.array([False, True, False, False])


@differentiable_broadcast
def f(x, y):
    if x > 0:
        return math.sin(x) * y, x * y * y
    return x * math.exp(y), x - y


class Interface:
    """An array by NumPy's array interface."""

    def __init__(self, values: Any) -> None:
        self._values, self.__array_interface__ = values, values.__array_interface__


class OnlyDLPack:
    """An array by DLPack, and in no other way."""

    def __init__(self, values: Any, device: tuple[int, int] | None = None) -> None:
        self._values, self._device = values, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._device or self._values.__dlpack_device__()


class Kind(NamedTuple):
    """A kind of array: what makes one of an array of NumPy's, the name in the table, and what its results keep."""

    make: Callable[[Any], Any]
    name: str
    keeps: str = ""
    needs: str = "numpy"


def masked(values: Any) -> Any:
    return np.ma.MaskedArray(values, MASK)


def series(values: Any) -> Any:
    return pytest.importorskip("pandas").Series(values, index=list("abcd"), name="s", copy=False)


def data_array(values: Any) -> Any:
    return pytest.importorskip("xarray").DataArray(values, dims="t", coords={"t": [1, 2, 3, 4]})


KINDS = {
    "NumPy": Kind(lambda values: values, "`numpy.ndarray`, any strides, read-only too"),
    "list": Kind(lambda values: values.tolist(), "list, tuple, range"),
    "memoryview": Kind(memoryview, "`memoryview`"),
    "array.array": Kind(lambda values: array.array("d", values), "`array.array`"),
    "interface": Kind(Interface, "`__array_interface__`"),
    "DLPack": Kind(OnlyDLPack, "DLPack in a host's memory"),
    "masked": Kind(masked, "`numpy.ma.MaskedArray`", "the mask"),
    "pandas": Kind(series, "`pandas.Series`", "the index, and the name if all have the same"),
    "xarray": Kind(data_array, "`xarray.DataArray`", "dimensions and coordinates"),
}
EACH = pytest.mark.parametrize("kind", [name for name in KINDS if name != "NumPy"])


def numbers(value: Any) -> Any:
    """The numbers of an array of any kind."""
    return np.asarray(value.filled(np.nan) if isinstance(value, np.ma.MaskedArray) else value)


def same(found: Any, expected: Any, kind: str) -> None:
    """The numbers are equal, but for those that are masked."""
    if kind == "masked" and np.shape(expected) == (4,):
        assert found.mask.tolist() == MASK.tolist()
        found, expected = numbers(found)[~MASK], expected[~MASK]
    np.testing.assert_array_equal(numbers(found), expected)


def type_of_result(kind: str) -> type:
    made = KINDS[kind].make(X)
    return np.ndarray if adapter_for(made) is None else type(made)


@EACH
def test_every_product_gives_the_same_numbers_in_the_same_kind(kind: str) -> None:
    make, expected_type = KINDS[kind].make, type_of_result(kind)
    x, y = make(X.copy()), make(Y.copy())
    plain_jacobian, plain_hessian = f.jacobian(X, Y), f.hessian(X, Y)
    value, jacobian = f.value_and_jacobian(x, y)
    hessian = f.hessian(x, y)
    for output in range(2):
        for found in (value, f(x, y)):
            assert isinstance(found[output], expected_type)
            same(found[output], f(X, Y)[output], kind)
        for at in ("x", "y"):
            assert isinstance(jacobian[output, at], expected_type)
            same(jacobian[output, at], plain_jacobian[output, at], kind)
            same(f.jacobian(x, y)[output, at], plain_jacobian[output, at], kind)
            same(f.partial(at)(x, y)[output], plain_jacobian[output, at], kind)
            same(hessian[output, at, "y"], plain_hessian[output, at, "y"], kind)
            same(f.value_jacobian_and_hessian(x, y)[2][output, "x", at], plain_hessian[output, "x", at], kind)
        tangents = f.jvp((x, y), (y, 2.0))[1], f.jvp((X, Y), (Y, 2.0))[1]
        same(tangents[0][output], tangents[1][output], kind)
        products = [f.hvp(primals, (1.0, 2.0), wrt="x")[output, "x"] for primals in ((x, y), (X, Y))]
        same(*products, kind)
    cotangents = make(np.arange(4.0)), make(np.ones(4))
    pulled, plain = f.vjp(x, y)[1](*cotangents), f.vjp(X, Y)[1](np.arange(4.0), np.ones(4))
    both = f.value_and_vjp((x, y), cotangents)[1]
    for found, again, expected in zip(pulled, both, plain, strict=True):
        assert isinstance(found, expected_type)
        same(found, expected, kind)
        same(again, expected, kind)


@EACH
def test_a_number_beside_it_gets_the_sum(kind: str) -> None:
    keep = ~MASK if kind == "masked" else np.ones(4, bool)
    x = KINDS[kind].make(X)
    ones = x * 0 + 1 if kind == "xarray" else np.ones(4)
    found = f.vjp(x, 2.0)[1](ones, ones)
    expected = f.vjp(X[keep], 2.0)[1](np.ones(keep.sum()), np.ones(keep.sum()))
    assert np.ndim(found[1]) == 0
    np.testing.assert_allclose(float(found[1]), expected[1], rtol=4 * np.finfo(float).eps * 4)


@EACH
def test_the_jacobian_contracts_in_the_same_kind(kind: str) -> None:
    if type_of_result(kind) is np.ndarray:
        return
    x = KINDS[kind].make(X)
    jacobian, plain = f.jacobian(x, 2.0), f.jacobian(X, 2.0)
    one = x * 0 + 1
    keep = ~np.ma.getmaskarray(x) if kind == "masked" else np.ones(4, bool)
    pulled, expected = jacobian.pullback(one, one), plain.pullback(*[np.where(keep, 1.0, 0.0)] * 2)
    assert isinstance(pulled[0], type(x))
    np.testing.assert_allclose(numbers(pulled[0])[keep], expected[0][keep])
    np.testing.assert_allclose(float(pulled[1]), expected[1])
    pushed = jacobian.pushforward(one, 1.0)[0]
    np.testing.assert_allclose(numbers(pushed)[keep], plain.pushforward(np.ones(4), 1.0)[0][keep])
    np.testing.assert_allclose(numbers(jacobian.stacked(1))[keep], plain.stacked(1)[keep])


@EACH
def test_explain_takes_it(kind: str) -> None:
    x = KINDS[kind].make(X)
    explained, plain = f.explain(x, 2.0), f.explain(X, 2.0)
    assert (explained.shape, explained.bytes_read) == (plain.shape, plain.bytes_read)


# --- what is read in place --------------------------------------------------------------------------------------------


def read_in_place(kind: str) -> bool:
    """Whether the array that a kernel reads has the memory of the argument."""
    values = X.copy()
    made = KINDS[kind].make(values)
    if kind == "array.array":
        values = np.frombuffer(made)
    adapter = adapter_for(made)
    if adapter is None:
        return np.shares_memory(as_plain(made, "x"), values)
    inside = made.data if kind == "xarray" else adapter.array_in(made, "x")  # type: ignore[attr-defined]
    return np.shares_memory(inside, values)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_read_in_place(kind: str) -> None:
    assert read_in_place(kind) == (kind != "list")


PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "arrays.md"
TABLE = re.compile(r"<!-- table -->\n(.*)<!-- end of table -->", re.DOTALL)
BY_HAND = [
    "| `torch.Tensor` ([PyTorch](pytorch.md)) | `torch.Tensor` | yes | the device, and what autograd records |",
    "| `__cuda_array_interface__`, DLPack on a GPU | `cupy.ndarray` | yes | the device |",
    "| `cupy.ndarray` | `cupy.ndarray` | yes | the device |",
    "| `pandas.DataFrame`, `xarray.Dataset` | an error that says how to pass a column | | |",
    "| arrays with units, sparse arrays | an error that says what to pass | | |",
]


def test_the_table_in_the_docs(request: pytest.FixtureRequest) -> None:
    rows = ["| argument | the result is | read in place | it keeps |", "| --- | --- | --- | --- |"]
    for kind, (make, name, keeps, _) in KINDS.items():
        result = f(make(X), 2.0)[0]
        module = type(result).__module__.split(".")
        library = ".".join(module[:2]) if module[:2] == ["numpy", "ma"] else module[0]
        in_place = "yes" if read_in_place(kind) else "no"
        rows.append(f"| {name} | `{library}.{type(result).__name__}` | {in_place} | {keeps} |".replace("  |", " |"))
    table = "\n".join(["", *rows, *BY_HAND, "", ""])
    text = PAGE.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        PAGE.write_text(TABLE.sub(lambda _: f"<!-- table -->\n{table}<!-- end of table -->", text), encoding="utf-8")
        text = PAGE.read_text(encoding="utf-8")
    (found,) = TABLE.findall(text)
    assert found == table, "run: pytest tests/interop/test_any_array.py --update-golden"


# --- what is refused --------------------------------------------------------------------------------------------------

pd, xr = (pytest.importorskip(name) for name in ("pandas", "xarray"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: f(series(X), data_array(X)), ArgumentError, r"x is a pandas.Series and y is an xarray.DataArray"),
        (lambda: f(series(X), masked(X)), ArgumentError, r"x is a pandas.Series and y is a masked array"),
        (lambda: f(X, data_array(X)), ArgumentError, r"y is an xarray.DataArray and x is a NumPy array"),
        (lambda: f(series(X), series(X)[::-1]), ShapeError, r"need equal indexes.*x\.align\(y\)"),
        (lambda: f(series(X), X[:3]), ShapeError, r"an array of shape \(3,\) stands beside Series of 4"),
        (lambda: f(data_array(X), data_array(X)[1:]), ShapeError, r"differ in coordinates.*xarray\.align"),
        (
            lambda: f(pd.DataFrame({"a": X}), 1.0),
            ArgumentError,
            r"x is a pandas\.DataFrame\. Pass its columns.*x\['a'\]",
        ),
        (lambda: f(xr.Dataset({"a": data_array(X)}), 1.0), ArgumentError, r"xarray\.Dataset.*x\['a'\]"),
        (lambda: f(pd.Series(list("abcd")), 1.0), DTypeError, "x has dtype"),
        (lambda: f(pd.Series(["a", "b"], dtype="category"), 1.0), DTypeError, "x has dtype category"),
        (lambda: f(pd.Series([1, None], dtype="Int64"), 1.0), ArgumentError, "missing values, which int64 cannot hold"),
        (lambda: f(series(X), 1.0, out=np.empty(4)), ArgumentError, "out= takes arrays of NumPy's and CuPy's"),
        (lambda: f([[1.0, 2.0], [3.0]], 1.0), ArgumentError, "x is a list that no array can be made of"),
        (lambda: f([None], 1.0), ArgumentError, "x is a list of objects that are no numbers"),
        (lambda: f(["1.0"], 1.0), DTypeError, "x has dtype <U3"),
        (lambda: f([1j], 1.0), CompileError, "this is a complex number"),
        (lambda: f.jvp((series(X), 1.0), (X[:3], None)), ShapeError, "the tangent of x has shape"),
        (lambda: f.vjp(series(X), 1.0)[1](X, X[:3]), ShapeError, "the cotangent of output 1 has shape"),
        (lambda: f.vjp(data_array(X), 1.0)[1](X, X), ArgumentError, "without names of dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# --- each library's own ways ------------------------------------------------------------------------------------------


def test_missing_numbers_are_nan() -> None:
    found = f(pd.Series([0.5, None], dtype="Float64"), 2.0)[0]
    np.testing.assert_array_equal(found.to_numpy(), [math.sin(0.5) * 2.0, np.nan])


def test_series_keep_index_and_common_name() -> None:
    assert f(series(X), series(Y))[0].name == "s"
    assert f(series(X), series(Y).rename("other"))[0].name is None
    assert f(series(X), 2.0)[0].index.tolist() == list("abcd")


def test_dimensions_broadcast_by_name_and_sums_are_over_the_others() -> None:
    x, y = data_array(X), xr.DataArray(Y[:3], dims="s")
    value, pullback = f.vjp(x, y)
    assert value[0].dims == ("t", "s") and value[0].coords["t"].to_numpy().tolist() == [1, 2, 3, 4]
    ones = xr.ones_like(value[0])
    plain = f.vjp(X[:, None], Y[None, :3])[1](np.ones((4, 3)), np.ones((4, 3)))
    for found, expected, dims in zip(pullback(ones.T, ones), plain, ("t", "s"), strict=True):
        assert found.dims == (dims,)
        np.testing.assert_allclose(found.to_numpy(), expected.ravel())


def test_a_cotangent_that_is_nan_is_not_left_out_of_a_sum() -> None:
    x = data_array(X)
    cotangent = xr.where(x.t == 2, np.nan, xr.ones_like(x))
    assert math.isnan(f.vjp(x, 2.0)[1](cotangent, cotangent)[1])


def test_other_dtypes_and_layouts() -> None:
    small = X.astype(np.float32)
    assert f(series(small), 2.0)[0].dtype == np.float32
    assert f(data_array(small), np.float64(2.0))[0].dtype == np.float64
    assert f(memoryview(small), 2.0)[0].dtype == np.float32
    swapped = np.frombuffer(b"\0" + X.astype(">f8").tobytes(), ">f8", offset=1)
    np.testing.assert_array_equal(f(Interface(swapped), 2.0)[0], f(X, 2.0)[0])
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(f(memoryview(frozen), 2.0)[0], f(X, 2.0)[0])
    np.testing.assert_array_equal(f(memoryview(X)[::-2], 2.0)[0], f(X[::-2], 2.0)[0])
    np.testing.assert_array_equal(f(range(3), 2)[1], f(np.arange(3), 2)[1])
    np.testing.assert_array_equal(
        f([[1.0], [2.0]], (3.0, 4.0))[1], f(np.array([[1.0], [2.0]]), np.array([3.0, 4.0]))[1]
    )
    assert f([], 1.0)[0].shape == (0,)


def test_lists_take_turns_with_arrays() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(f(X.tolist(), Y)[0], f(X, Y)[0])
        np.testing.assert_array_equal(f(X.tolist(), Y.tolist())[0], f(X, Y)[0])
        assert isinstance(f(series(X), 2.0)[0], pd.Series)


def test_captured_arrays_go_beside_any_kind() -> None:
    weights = Y.copy()
    scaled = differentiable_broadcast(lambda x: x * weights)
    np.testing.assert_array_equal(scaled(series(X)).to_numpy(), X * Y)
    weights[0] = 7.0
    np.testing.assert_array_equal(scaled(series(X)).to_numpy(), X * weights)
    np.testing.assert_array_equal(scaled(data_array(X)).to_numpy(), X * weights)


def test_an_object_on_a_gpu_goes_to_cupy() -> None:
    pytest.importorskip("cupy")
    on_device = OnlyDLPack(X, (2, 0))
    with pytest.raises(ArgumentError, match=r"x is an? .*OnlyDLPack that no array can be made of"):
        f(on_device, 1.0)


@pytest.mark.parametrize("kind", ["masked", "xarray"])
def test_arrays_of_complex_numbers_stay_of_their_kind_in_every_product(kind: str) -> None:
    """They used to lose their mask, and their parts had gradients, but no tangents."""
    f = differentiable_broadcast(lambda z, a: z * z * a)
    z = np.array([1 + 2j, -1j, 0.5, 3 - 1j])
    made = KINDS[kind].make(z)

    def check(found: Any, expected: Any) -> None:
        assert type(found) is type_of_result(kind)
        same(found, expected, kind)

    value, jacobian = f.value_and_jacobian(made, 2.0)
    for found in (f(made, 2.0), value):
        check(found, z * z * 2)
    check(jacobian["z.imag"], 4j * z)
    check(f.jvp((made, 2.0), (made, None))[1], 4 * z * z)
    check(f.hvp((made, 2.0), {"z": 1.0}, wrt="a")["a"], 2 * z)
    _, pullback = f.vjp(made, 2.0)
    gradient, of_number = pullback(made)
    check(gradient, (4 * z).conj() * z)
    keep = ~MASK if kind == "masked" else np.ones(4, bool)
    np.testing.assert_allclose(of_number, np.sum((z * z).conj() * z, where=keep).real)
    assert f.explain(made, 2.0).dtype == "float64"


def test_libraries_without_complex_numbers_say_what_to_pass() -> None:
    square = differentiable_broadcast(lambda z: abs(z) ** 2)
    with pytest.raises(ArgumentError, match=r"z is a pandas\.\S*Series of complex numbers.*Pass np\.asarray\(z\)"):
        square(series([1j, 2.0, 3.0, 4.0]))


def test_what_a_mask_hides_is_not_checked() -> None:
    """An error was raised for an element that is masked because the function is not defined there."""
    log = differentiable_broadcast(lambda x: math.log(x), check="nan")
    hidden = np.ma.MaskedArray([1.0, -1.0], [False, True])
    assert log(hidden).tolist() == [0.0, None]
    assert log.jacobian(hidden, check="finite")["x"].tolist() == [1.0, None]
    assert log.vjp(hidden)[1](np.ones(2))[0].tolist() == [1.0, None]
    assert log.sum(hidden) == 0.0
    assert hidden.data.tolist() == [1.0, -1.0]
    with pytest.raises(NonFiniteError, match=r"index \(1,\)"):
        log(np.ma.MaskedArray([1.0, -1.0], [True, False]))
