"""Calls on PyTorch's tensors: the same bits as on NumPy's arrays, in the tensors' memory, recorded by autograd."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import threading
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, DTypeError, IterationError, NonFiniteError, ShapeError
from dualbcast.special import sigmoid

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad  # noqa: E402

RNG = np.random.default_rng(0)


@differentiable_broadcast
def swish_or_line(x, slope):
    return x * sigmoid(x) if x > -1 else slope * x


@differentiable_broadcast
def product(x, y):
    return x * y


class Both(NamedTuple):
    sum: float
    is_large: bool
    count: int


@differentiable_broadcast
def both(x, n):
    return Both(x + n, x > 1, n + 1)


def random(*shape: int, dtype: Any = torch.float64, requires_grad: bool = False) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape)).to(dtype).requires_grad_(requires_grad)


def plain(tensor: Any) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def same(tensor: Any, array: Any) -> None:
    """The same bits, in the same dtype and shape."""
    found = plain(tensor)
    assert (found.dtype, found.shape) == (np.asarray(array).dtype, np.shape(array))
    assert found.tobytes() == np.asarray(array).tobytes()


# --- what comes in, and what goes out --------------------------------------------------------------------------------

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("name", ["bool", "float16", "bfloat16", "float32", "float64", *INTEGERS])
@pytest.mark.parametrize("other", ["float32", "float64", "int64"])
def test_promotion_is_numpys_for_each_dtype(name: str, other: str) -> None:
    x = torch.arange(6).to(getattr(torch, name)).reshape(2, 3)
    y = torch.tensor([1, 2, 3]).to(getattr(torch, other))
    if (name, other) == ("bfloat16", "int64"):
        pytest.skip("NumPy has no common dtype for these")
    for _ in range(2):  # the second call takes the short way
        same(product(x, y), product(plain(x), plain(y)))


def strided() -> dict[str, Any]:
    x = random(4, 6)
    return {
        "transposed": x.T,
        "sliced": x[::2, 1::3],
        "expanded": random(4, 1).expand(4, 6),
        "row": random(6).expand(4, 6),
        "one": torch.tensor(2.0, dtype=torch.float64),
        "empty": torch.empty(0, 3, dtype=torch.float64),
        "channels last": random(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "single": random(1, 1, 1),
        "negative": torch.complex(random(3), random(3)).conj().imag,
    }


@pytest.mark.parametrize("kind", strided())
def test_strides_are_followed(kind: str) -> None:
    x = strided()[kind]
    y = torch.full(x.shape[-1:], 3.0, dtype=torch.float64)
    for _ in range(3):
        same(swish_or_line(x, y), swish_or_line(x.resolve_neg().numpy(), y.numpy()) + np.zeros(np.shape(x)))


def test_a_misaligned_tensor_is_copied() -> None:
    numbers = np.array([1.0, -2.0, 3.0, 0.5])
    x = torch.frombuffer(bytearray(bytes(4) + numbers.tobytes()), dtype=torch.float64, offset=4)
    assert x.data_ptr() % 8 == 4
    aligned = torch.from_numpy(numbers)
    for each in (aligned, aligned, x, x, aligned):
        same(swish_or_line(each, 0.5), swish_or_line(numbers, 0.5))


@pytest.mark.parametrize("shape", [(4, 4), (300, 400)])
def test_memory_is_shared(shape: tuple[int, ...]) -> None:
    x = random(*shape)
    first = product(x, 2.0)
    x[0, 0] = 100.0
    assert product(x, 2.0)[0, 0] == 200.0
    assert first[0, 0] != 200.0
    y = product(x, 1.0)
    y.add_(1.0)  # results are ordinary tensors that may be changed
    assert torch.equal(y, x + 1.0)


def test_outputs_follow_the_order_of_memory() -> None:
    x = random(4, 6).T
    assert product(x, x).stride() == x.stride()
    assert product(x, x).stride() == x.stride()


def test_numbers_beside_tensors() -> None:
    x = random(3, dtype=torch.float32)
    for number in (2, 2.5, True, np.float32(1.5), np.int8(3), np.float64(2.0)):
        for _ in range(2):
            same(product(x, number), product(x.numpy(), number))
        same(product(number, x), product(number, x.numpy()))
    assert product(x, torch.tensor(2.0, dtype=torch.float64)).dtype is torch.float64  # a tensor of no axes is an array


def test_structures_of_outputs() -> None:
    x = random(3, requires_grad=True)
    result = both(x, torch.tensor([1, 2, 3]))
    assert type(result) is Both
    assert [y.dtype for y in result] == [torch.float64, torch.bool, torch.int64]
    assert [y.requires_grad for y in result] == [True, False, False]
    result.sum.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_refused() -> None:
    x = random(3)
    with pytest.raises(ArgumentError, match="y is a NumPy array"):
        product(x, np.ones(3))
    with pytest.raises(ArgumentError, match=r"y is on meta|x is on cpu and y is on meta"):
        product(x, x.to("meta"))
    with pytest.raises(ArgumentError, match=r"x is on meta, where no kernel can run\. Pass x\.cpu\(\)"):
        product(x.to("meta"), 2.0)
    with pytest.raises(DTypeError, match=r"x has dtype torch\.float8_e5m2.*to\(torch\.float32\)"):
        product(x.to(torch.float8_e5m2), 2.0)
    with pytest.raises(ArgumentError, match=r"x is a tensor of layout torch\.sparse_coo\. Pass x\.to_dense\(\)"):
        product(x.to_sparse(), 2.0)
    product(x, 2.0)
    with pytest.raises(ArgumentError, match="layout"):
        product(x.to_sparse(), 2.0)
    with pytest.raises(ArgumentError, match=r"out= takes arrays of NumPy's and CuPy's"):
        product(x, x, out=torch.empty(3))
    with pytest.raises(ShapeError, match=r"x \(3,\), y \(4,\)"):
        product(x, random(4))
    with pytest.raises(DTypeError, match="no common dtype"):
        product(x.to(torch.float16), x.to(torch.bfloat16))


def test_iterations_are_limited() -> None:
    @differentiable_broadcast(max_iterations=10)
    def halved(x):
        while x > 1:
            x = x / 2
        return x

    x = torch.tensor([2.0, 64.0], requires_grad=True)
    halved(x).sum().backward()
    assert torch.equal(x.grad, torch.tensor([0.5, 1 / 64]))
    with pytest.raises(IterationError):
        halved(torch.tensor([2.0, 1e9], requires_grad=True))


def test_results_are_checked() -> None:
    root = differentiable_broadcast(lambda x: math.sqrt(x), check="finite")
    x = torch.tensor([4.0, 0.0], requires_grad=True)
    assert torch.equal(root(x), torch.tensor([2.0, 0.0]))
    with pytest.raises(NonFiniteError, match=r"0\.5 / 0\.0 = inf here"):
        root(x).sum().backward()


def test_errors_of_the_compiler_come_through() -> None:
    @differentiable_broadcast
    def wrong(x):
        return x.shape

    with pytest.raises(Exception, match="shape"):
        wrong(random(3, requires_grad=True))


# --- autograd --------------------------------------------------------------------------------------------------------


def gradients(function: Any, *args: Any) -> list[Any]:
    inputs = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
    return list(torch.autograd.grad(function(*args).square().sum(), inputs))


def where_form(x: Any, slope: Any) -> Any:
    return torch.where(x > -1, x * torch.sigmoid(x), slope * x)


@pytest.mark.parametrize("shapes", [((4, 4), (4, 4)), ((4, 1), (3,)), ((200, 300), (300,)), ((), ()), ((2, 0), (1,))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_equal_those_of_torch(shapes: Any, dtype: Any) -> None:
    args = [random(*shape, dtype=dtype, requires_grad=True) for shape in shapes]
    for _ in range(2):
        for ours, theirs in zip(gradients(swish_or_line, *args), gradients(where_form, *args), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("jacobian", ["cache", "recompute", "auto"])
def test_each_policy_gives_the_same_gradients_of_first_and_second_order(jacobian: Any) -> None:
    @differentiable_broadcast(jacobian=jacobian)
    def f(x, y):
        return (math.exp(math.sin(x * y)), y * 2.0) if x > 0 else (x * y, x)

    x, y = random(64, 50, requires_grad=True), random(50, requires_grad=True)

    def reference(x: Any, y: Any) -> Any:
        a = torch.where(x > 0, torch.exp(torch.sin(x * y)), x * y)
        return a, torch.where(x > 0, (y * 2.0).expand_as(x), x)

    found = []
    for function in (f, reference):
        a, b = function(x, y)
        first = torch.autograd.grad((a * b).sum(), (x, y), create_graph=True)
        second = torch.autograd.grad((first[0].sin().sum() + first[1].cos().sum()), (x, y))
        alone = torch.autograd.grad(function(x, y)[1].sum(), x)  # a cotangent of one output only
        found.append([*first, *second, *alone])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_jacobian_is_kept_where_the_policy_says_so() -> None:
    @differentiable_broadcast(jacobian="cache")
    def cached(x):
        return math.sin(x) * x

    @differentiable_broadcast(jacobian="recompute")
    def anew(x):
        return math.sin(x) * x

    x = random(100, 100, requires_grad=True)
    saved = [len(f(x).grad_fn.saved_tensors) for f in (cached, anew)]
    assert saved == [2, 1]


def test_numbers_of_numpys_do_not_count_in_the_policy() -> None:
    @differentiable_broadcast
    def costly(factor, x):
        for _ in range(20):
            x = math.sin(x) * factor
        return x

    x = random(100, 100, requires_grad=True)
    for factor in (np.float64(1.5), 1.5):
        (dx,) = torch.autograd.grad(costly(factor, x).sum(), x)
        y = x
        for _ in range(20):
            y = torch.sin(y) * 1.5
        torch.testing.assert_close(dx, torch.autograd.grad(y.sum(), x)[0])


def test_changes_in_place_are_seen() -> None:
    for shape in ((3,), (400, 500)):
        x = random(*shape, requires_grad=True)
        inner = x * 1.0
        y = swish_or_line(inner, 0.5)
        inner.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_only_what_requires_gradients_gets_them() -> None:
    x, slope = random(3, requires_grad=True), random(3)
    y = swish_or_line(x, slope)
    y.sum().backward()
    assert slope.grad is None
    assert x.grad is not None
    with torch.no_grad():
        assert not swish_or_line(x, slope).requires_grad
    assert not swish_or_line(x.detach(), slope).requires_grad
    with torch.inference_mode():
        assert torch.equal(swish_or_line(x, slope), y)


def test_an_argument_that_does_not_matter_gets_zeros() -> None:
    @differentiable_broadcast
    def first(x, y):
        return x * 2 + (1 if y > 0 else 0)

    x, y = random(2, 3, requires_grad=True), random(3, requires_grad=True)
    for _ in range(2):
        dx, dy = torch.autograd.grad(first(x, y).sum(), (x, y))
        assert torch.equal(dx, torch.full((2, 3), 2.0, dtype=torch.float64))
        assert torch.equal(dy, torch.zeros(3, dtype=torch.float64))
    first(x, y).sum().backward()
    y.grad.add_(1.0)  # it is memory of its own
    assert torch.equal(y.grad, torch.ones(3, dtype=torch.float64))


def test_constant_outputs_have_zero_gradients() -> None:
    @differentiable_broadcast
    def constant(x):
        return 2.5, x

    x = random(3, requires_grad=True)
    y, _ = constant(x)
    assert torch.equal(y, torch.full((3,), 2.5, dtype=torch.float64))
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.zeros(3, dtype=torch.float64))


def test_captured_arrays_are_read_at_every_call() -> None:
    weights = np.array([1.0, 2.0, 3.0])

    @differentiable_broadcast
    def weighted(x):
        return x * x * weights

    x = random(2, 3, requires_grad=True)
    for factor in (1.0, 10.0):
        weights *= factor
        (dx,) = torch.autograd.grad(weighted(x).sum(), x)
        torch.testing.assert_close(dx, 2 * x.detach() * torch.from_numpy(weights))


def test_float32_gradients_beside_float64() -> None:
    x, y = random(3, dtype=torch.float32, requires_grad=True), random(2, 3, requires_grad=True)
    dx, dy = torch.autograd.grad(product(x, y).sum(), (x, y))
    assert (dx.dtype, dy.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(dx, y.detach().sum(0).float())


def test_batches_of_cotangents() -> None:
    x, y = random(3, 4, requires_grad=True), random(4, requires_grad=True)
    out = swish_or_line(x, y)
    cotangents = random(5, 3, 4)
    batched = torch.autograd.grad(out, (x, y), cotangents, is_grads_batched=True, retain_graph=True)
    one_by_one = [torch.autograd.grad(out, (x, y), g, retain_graph=True) for g in cotangents]
    for ours, theirs in zip(batched, zip(*one_by_one, strict=True), strict=True):
        torch.testing.assert_close(ours, torch.stack(theirs))


def test_saved_tensors_may_be_packed_by_hooks() -> None:
    x, y = random(4, 6).T.requires_grad_(), random(6, 4, requires_grad=True)
    expected = torch.autograd.grad(swish_or_line(x, y).sum(), (x, y))
    # They come back with other strides.
    pack, unpack = (lambda t: t.contiguous().clone()), (lambda t: t)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = swish_or_line(x, y)
    for ours, theirs in zip(torch.autograd.grad(out.sum(), (x, y)), expected, strict=True):
        assert torch.equal(ours, theirs)
    checkpointed = torch.utils.checkpoint.checkpoint(swish_or_line, x, y, use_reentrant=False)
    for ours, theirs in zip(torch.autograd.grad(checkpointed.sum(), (x, y)), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_backward_in_another_thread() -> None:
    x = random(40, 50, requires_grad=True)
    outputs = [swish_or_line(x, float(k)).sum() for k in range(8)]
    threads = [threading.Thread(target=y.backward) for y in outputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sum(torch.autograd.grad(swish_or_line(x, float(k)).sum(), x)[0] for k in range(8))
    torch.testing.assert_close(x.grad, expected)


# --- products and torch.func -----------------------------------------------------------------------------------------


def test_products_are_tensors_that_can_be_differentiated() -> None:
    @differentiable_broadcast
    def f(x, y):
        return x**3 * math.sin(y)

    x, y = random(3, 1, requires_grad=True), random(4, requires_grad=True)
    value, J = f.value_and_jacobian(x, y)  # noqa: N806
    assert torch.equal(value, f(x, y))
    torch.testing.assert_close(J["x"], 3 * x**2 * torch.sin(y))
    torch.testing.assert_close(
        torch.autograd.grad(J["x"].sum(), (x, y)), torch.autograd.grad((3 * x**2 * torch.sin(y)).sum(), (x, y))
    )
    torch.testing.assert_close(f.hessian(x, y)["x", "y"], 3 * x**2 * torch.cos(y))
    torch.testing.assert_close(f.partial("y")(x, y), x**3 * torch.cos(y))
    torch.testing.assert_close(J.stacked(), torch.stack([J["x"], J["y"]], -1))
    tangent = random(3, 1)
    torch.testing.assert_close(f.jvp((x, y), (tangent, None))[1], tangent * J["x"])
    value, pullback = f.vjp(x, y)
    cotangent = random(3, 4)
    torch.testing.assert_close(pullback(cotangent), torch.autograd.grad(f(x, y), (x, y), cotangent))
    torch.testing.assert_close(f.value_and_vjp((x, y), cotangent)[1], pullback(cotangent))
    torch.testing.assert_close(J.pullback(cotangent), pullback(cotangent))


def test_every_product_gives_the_numbers_of_arrays() -> None:
    @differentiable_broadcast
    def f(x, y):
        return x * y * y if x > 0 else y, x * 3.0

    host = RNG.standard_normal((2, 3)), RNG.standard_normal(3)
    x, y = (torch.from_numpy(each) for each in host)
    (value, jacobian), hessian = f.value_and_jacobian(x, y), f.hessian(x, y)
    plain, plain_hessian = f.jacobian(*host), f.hessian(*host)
    for output in range(2):
        same(value[output], f(*host)[output])
        for at in ("x", "y"):
            same(jacobian[output, at], plain[output, at])
            same(f.jacobian(x, y)[output, at], plain[output, at])
            same(f.partial(at)(x, y)[output], f.partial(at)(*host)[output])
            same(hessian[output, at, "y"], plain_hessian[output, at, "y"])
            same(f.value_jacobian_and_hessian(x, y)[2][output, "x", at], plain_hessian[output, "x", at])
        same(jacobian.stacked(output), plain.stacked(output))
        same(f.hvp((x, y), (1.0, 2.0), wrt="x")[output, "x"], f.hvp(host, (1.0, 2.0), wrt="x")[output, "x"])
    cotangents = np.ones((2, 3)), np.arange(6.0).reshape(2, 3)
    expected = f.vjp(*host)[1](*cotangents)
    for bars in (cotangents, tuple(map(torch.from_numpy, cotangents))):
        for found, again, each in zip(f.vjp(x, y)[1](*bars), f.value_and_vjp((x, y), bars)[1], expected, strict=True):
            same(found, each)
            same(again, each)
    pulled = jacobian.pullback(*map(torch.from_numpy, cotangents))
    np.testing.assert_allclose(pulled[1], expected[1])
    pushed = jacobian.pushforward(torch.ones(2, 3), 1.0)[0]
    np.testing.assert_allclose(pushed, plain.pushforward(np.ones((2, 3)), 1.0)[0])
    ones = torch.ones(2, 3, dtype=torch.float64)
    assert float(f.vjp(x, 2.0)[1](ones, ones)[1]) == pytest.approx(
        float(f.vjp(host[0], 2.0)[1](plain[0, 0] * 0 + 1, plain[0, 0] * 0 + 1)[1])
    )
    assert f.explain(x, y).bytes_read == f.explain(*host).bytes_read


def test_other_backends_and_options() -> None:
    x = random(3, 4, requires_grad=True)
    for options in ({"backend": "python"}, {"fastmath": True}, {"static": "power"}):

        @differentiable_broadcast(**options)
        def f(x, power=3):
            return math.sin(x) ** power

        torch.testing.assert_close(f(x, power=3), torch.sin(x) ** 3)
        torch.testing.assert_close(gradients(f, x), gradients(lambda x: torch.sin(x) ** 3, x))


def test_transforms_of_torch_func() -> None:
    x, y = random(3, 4), random(4)

    def loss(f: Any) -> Any:
        return lambda x, y: f(x, y).sin().sum()

    ours, theirs = loss(swish_or_line), loss(where_form)
    both_args = (0, 1)
    for transform in (
        lambda f: torch.func.grad(f, both_args),
        lambda f: torch.func.jacrev(f, both_args),
        lambda f: torch.func.jacfwd(f, both_args),
        lambda f: torch.func.hessian(f, both_args),
        lambda f: torch.func.jacrev(torch.func.jacrev(f, 0), 1),
        lambda f: torch.func.vmap(torch.func.grad(f, both_args), in_dims=(0, None)),
        lambda f: torch.func.vmap(torch.func.vmap(f, in_dims=(0, 0)), in_dims=(0, None)),
        lambda f: torch.func.vmap(torch.func.hessian(f, 1), in_dims=(0, None)),
        lambda f: lambda x, y: torch.func.jvp(f, (x, y), (y + x, y))[1],
        lambda f: lambda x, y: torch.func.jvp(torch.func.grad(f), (x, y), (y + x, y))[1],
        lambda f: lambda x, y: torch.func.vjp(f, x, y)[1](torch.tensor(2.0, dtype=torch.float64)),
    ):
        torch.testing.assert_close(transform(ours)(x, y), transform(theirs)(x, y))


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (1, 0), (2, None), (-1, 0)])
def test_batches_broadcast(in_dims: Any) -> None:
    shapes = [(2, 3), (3,)]
    args = []
    for shape, dim in zip(shapes, in_dims, strict=True):
        x = random(5, *shape)
        args.append(x[0] if dim is None else x.movedim(0, dim))

    def grads(x: Any, slope: Any) -> Any:
        return torch.func.grad(lambda x, slope: swish_or_line(x, slope).square().sum(), (0, 1))(x, slope)

    batched = torch.func.vmap(grads, in_dims=in_dims)(*args)
    for k in range(5):
        alone = [x if dim is None else x.select(dim, k) for x, dim in zip(args, in_dims, strict=True)]
        for ours, theirs in zip(batched, grads(*alone), strict=True):
            torch.testing.assert_close(ours[k], theirs)


def test_a_number_gets_a_cotangent_for_each_member_of_a_batch() -> None:
    x = random(5, 3)

    def slope(x: Any) -> Any:
        return product.vjp(x, 2.0)[1](torch.ones(3, dtype=torch.float64))[1]

    torch.testing.assert_close(torch.func.vmap(slope)(x), x.sum(-1))
    torch.testing.assert_close(torch.stack([slope(each) for each in x]), x.sum(-1))


def test_integer_outputs_under_transforms() -> None:
    x, n = random(5, 3), torch.tensor([1, 2, 3])
    total = torch.func.grad(lambda x: (both(x, n).sum * both(x, n).count).sum())
    torch.testing.assert_close(torch.func.vmap(total)(x), (n + 1).double().expand(5, 3))
    value, tangent = torch.func.jvp(lambda x: both(x, n)[0], (x,), (x,))
    torch.testing.assert_close((value, tangent), (x + n, x))


def test_forward_mode_without_transforms() -> None:
    x, tangent = random(300, 400), random(300, 400)
    with forward_ad.dual_level():
        out = forward_ad.unpack_dual(swish_or_line(forward_ad.make_dual(x, tangent), 0.5))
        theirs = forward_ad.unpack_dual(where_form(forward_ad.make_dual(x, tangent), 0.5))
    torch.testing.assert_close(out.tangent, theirs.tangent)


# --- modules and processes -------------------------------------------------------------------------------------------


class Gate(torch.nn.Module):
    """A module that holds a function and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.function = swish_or_line
        self.slope = torch.nn.Parameter(torch.tensor([0.1, 0.2, 0.3]))

    def forward(self, x: Any) -> Any:
        return self.function(x, self.slope)


def test_modules_are_copied_pickled_and_trained() -> None:
    x = random(8, 3, dtype=torch.float32)
    gate = Gate()
    for other in (copy.deepcopy(gate), pickle.loads(pickle.dumps(gate))):
        assert torch.equal(other(x), gate(x))
        other(x).sum().backward()
        assert other.slope.grad is not None
        assert gate.slope.grad is None
    optimizer = torch.optim.SGD(gate.parameters(), 0.1)
    losses = []
    for _ in range(5):
        loss = gate(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)


def test_importing_dualbcast_does_not_import_torch() -> None:
    loaded = "{'torch', 'dualbcast.interop.pytorch.adapter'} & {*sys.modules}"
    code = f"import sys, dualbcast; assert not {loaded}"
    subprocess.run([sys.executable, "-c", code], check=True)
