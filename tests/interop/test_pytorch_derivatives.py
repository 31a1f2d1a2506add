"""PyTorch's own checkers on the whole corpus: backward, double backward, forward mode and batches, against finite
differences."""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from corpus_calls import arrays, compiled
from suites import sampled

from dualbcast import differentiable_broadcast

torch = pytest.importorskip("torch")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

CASES = [case for case in CORPUS if case.floats and len(case.kinks) < len(case.points)]


# The points at which a slope has a kink, so that there is no second derivative.
KINKS_OF_SLOPES = {"smoothstep": (0.0, 1.0)}


def tensors(case: Case, kinks: tuple[float, ...] = ()) -> list[Any]:
    """The points where there are derivatives, as one tensor for each argument; floats require gradients."""
    points = [point for at, point in enumerate(case.points) if at not in case.kinks]
    smooth = [case.points.index(point) for point in points if point[0] not in kinks]
    found = [torch.from_numpy(array) for array in arrays(case, "float64", smooth)]
    return [x.requires_grad_() if x.is_floating_point() else x for x in found]


def flat(case: Case) -> Any:
    """The function with its float outputs in a tuple."""
    function = compiled(case, "auto")

    def call(*args: Any) -> Any:
        return tuple([y for y in leaves(function(*args)) if y.is_floating_point()])

    return call


def leaves(result: Any) -> list[Any]:
    """The tensors in tuples and dataclasses."""
    if isinstance(result, torch.Tensor):
        return [result]
    parts = [getattr(result, field.name) for field in fields(result)] if is_dataclass(result) else result
    return [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize("case", sampled(CASES, 9), ids=lambda case: case.name)
def test_gradcheck(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert gradcheck(
            flat(case), tensors(case), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
        )


@pytest.mark.parametrize("case", sampled(CASES, 17), ids=lambda case: case.name)
def test_gradgradcheck(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert gradgradcheck(
            flat(case),
            tensors(case, KINKS_OF_SLOPES.get(case.name, ())),
            check_fwd_over_rev=True,
            check_rev_over_rev=True,
            check_batched_grad=True,
        )


def test_most_of_the_corpus_is_checked() -> None:
    assert len(CASES) > 60
    assert np.sum([len(case.points) - len(case.kinks) for case in CASES]) > 150


@differentiable_broadcast
def wave(x, y):
    return x * x * math.sin(y)


def composed(x: Any, y: Any) -> Any:
    """`wave` in operations of PyTorch's."""
    return x * x * torch.sin(y)


@pytest.mark.parametrize(
    "pulled",
    [
        lambda f, x, y: torch.func.vjp(f, x, y)[1](x),
        lambda f, x, y: torch.func.vjp(lambda x: f(x, y), x)[1](x),
        lambda f, x, y: torch.func.vjp(lambda x: torch.func.vmap(f, (0, None))(x, y), x)[1](x),
        lambda f, x, y: torch.func.vjp(lambda x: torch.func.vjp(lambda y: f(x, y), y)[1](x)[0], x)[1](y),
    ],
)
def test_pullbacks_run_after_their_transform_has_ended(pulled: Any) -> None:
    """What `vjp` has saved is then in wrappers without memory."""
    x = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]], dtype=torch.float64)
    for found, expected in zip(pulled(wave, x, x[0]), pulled(composed, x, x[0]), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_pullback_outlives_two_transforms() -> None:
    x, pullbacks = torch.tensor([0.5, -1.0], dtype=torch.float64), []

    def value(x: Any) -> Any:
        found, pullback = torch.func.vjp(lambda y: wave(x, y), x)
        pullbacks.append(pullback)
        return found

    torch.testing.assert_close(torch.func.vjp(value, x)[1](x)[0], 2 * x**2 * torch.sin(x) + x**3 * torch.cos(x))
    torch.testing.assert_close(pullbacks[0](x)[0], x**3 * torch.cos(x))
