"""Random numbers: the published words of Philox, the distributions, and the same bits in every order and target."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dualbcast import CompileError, differentiable_broadcast, get_num_threads, random, set_num_threads

WORD = 2**32 - 1


@differentiable_broadcast
def words(key: int, counter: int, stream: int) -> Any:
    return random.philox(key, counter, stream)


@differentiable_broadcast
def numbers(key: int, counter: int, stream: int) -> Any:
    return random.uniform(key, counter, stream), random.normal(key, counter, stream), random.exponential(key, counter)


def signed(number: int) -> int:
    """The integer of 64 bits with a sign that has these bits."""
    return number - 2**64 if number >= 2**63 else number


def philox_of_the_paper(key: int, counter: int, stream: int) -> tuple[int, ...]:
    """Philox 4x32-10 from its definition, on integers of any size."""
    k = [key & WORD, key >> 32 & WORD]
    c = [counter & WORD, counter >> 32 & WORD, stream & WORD, stream >> 32 & WORD]
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(high >> 32) ^ c[1] ^ k[0], high & WORD, (low >> 32) ^ c[3] ^ k[1], low & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return tuple(c)


# From the file kat_vectors of Random123, the authors' own library: counter, key and result.
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((WORD,) * 4, (WORD,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), PUBLISHED)
def test_the_published_words(counter: tuple[int, ...], key: tuple[int, ...], result: str) -> None:
    arguments = [signed(low | high << 32) for low, high in (key, counter[:2], counter[2:])]
    wanted = [int(word, 16) for word in result.split()]
    assert list(random.philox(*arguments)) == wanted
    assert [int(word) for word in words(*arguments)] == wanted


def test_the_words_of_a_kernel_are_those_of_the_definition() -> None:
    draw = np.random.default_rng(0)
    arguments = draw.integers(-(2**63), 2**63 - 1, (3, 1000), dtype=np.int64)
    found = np.stack(words(*arguments))
    wanted = [philox_of_the_paper(*(int(each) for each in point)) for point in arguments.T]
    np.testing.assert_array_equal(found, np.transpose(wanted))
    assert [random.philox(*map(int, point)) for point in arguments.T[:50]] == wanted[:50]


def test_other_backends_have_the_same_bits() -> None:
    i = np.arange(40)
    plain = differentiable_broadcast(words.__wrapped__, backend="python")
    np.testing.assert_array_equal(plain(-5, i, 3), words(-5, i, 3))
    by_python = [random.uniform(-5, at, 3) for at in range(40)]
    np.testing.assert_array_equal(numbers(-5, i, 3)[0], by_python)


def test_the_order_does_not_matter() -> None:
    i = np.arange(300_000)
    whole = np.stack(numbers(11, i, 2))
    np.testing.assert_array_equal(np.stack(numbers(11, i[::-7], 2)), whole[:, ::-7])
    np.testing.assert_array_equal(
        np.stack(numbers(11, i.reshape(-1, 3).T, 2)), whole.reshape(3, -1, 3).transpose(0, 2, 1)
    )
    before = get_num_threads()
    try:
        set_num_threads(1)
        np.testing.assert_array_equal(np.stack(numbers(11, i, 2)), whole)
    finally:
        set_num_threads(before)


ROWS, COLUMNS = np.arange(200, dtype=np.int16)[:, None], np.arange(1000, dtype=np.int16)


# A wrong generator fails by far; with this key the right one does not.
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stream", [0, 1])
def test_the_distributions(dtype: str, stream: int) -> None:
    @differentiable_broadcast
    def drawn(row: int, column: int, one: float) -> Any:
        key, i = 2026, 1000 * row + column
        happens = random.bernoulli(0.25, key, i, stream)
        uniform, normal = random.uniform(key, i, stream), random.normal(key, i, stream)
        return uniform * one, normal * one, random.exponential(key, i, stream) * one, happens

    *samples, happens = (each.ravel() for each in drawn(ROWS, COLUMNS, np.ones((), dtype)))
    for sample, law in zip(samples, ("uniform", "norm", "expon"), strict=True):
        assert sample.dtype == dtype
        assert stats.kstest(sample, law).pvalue > 1e-3
        # Neighbours are independent, as far as their ranks tell.
        assert stats.spearmanr(sample[:-1], sample[1:]).pvalue > 1e-3
    assert abs(happens.mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / happens.size)
    assert samples[0].min() >= 0
    assert samples[0].max() < 1


def test_streams_and_keys_are_independent() -> None:
    i = np.arange(100_000)
    samples = [numbers(key, i, stream)[1] for key, stream in ((1, 0), (1, 1), (2, 0), (-1, 0), (1, -1))]
    off_diagonal = np.corrcoef(samples)[np.triu_indices(len(samples), 1)]
    assert np.abs(off_diagonal).max() < 4.5 / math.sqrt(i.size)


def test_a_uniform_number_is_less_than_one() -> None:
    counter = 20922799  # found by a search: the highest 27 bits of its first word are 1
    assert random.philox(7, counter)[0] == 0xFFFFFFEF
    row, column = divmod(counter, 32768)

    @differentiable_broadcast
    def drawn(row: int, column: int, one: float) -> Any:
        i = 32768 * row + column
        return random.uniform(7, i) * one, random.normal(7, i) * one

    for dtype in (np.float32, np.float64):
        uniform, normal = drawn(np.int16(row), np.int16(column), dtype(1))
        assert 0.9999999 < uniform < 1
        assert np.isfinite(normal)


def test_what_is_drawn_is_a_constant_to_a_derivative() -> None:
    @differentiable_broadcast
    def drawn(mu: float, sigma: float, key: int, i: int) -> float:
        return mu + sigma * random.normal(key, i)

    i = np.arange(100)
    value, jacobian = drawn.value_and_jacobian(0.5, 2.0, 3, i)
    normal = np.array([random.normal(3, at) for at in range(100)])
    np.testing.assert_array_equal(jacobian["mu"], np.ones(100))
    np.testing.assert_allclose(jacobian["sigma"], normal, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(value, 0.5 + 2 * normal, rtol=1e-13)


def test_pathwise_greeks() -> None:
    """Price, delta and vega of a call: Black and Scholes' closed form is within four standard errors."""

    @differentiable_broadcast
    def payoff(spot: float, volatility: float, key: int, i: int) -> Any:
        end = spot * math.exp(volatility * random.normal(key, i) - volatility * volatility / 2)
        return max(end - 1.0, 0.0)

    spot, volatility, n = 1.1, 0.3, 1_000_000
    price, gradient = payoff.sum(spot, volatility, 5, np.arange(n), wrt=("spot", "volatility"), order=1)
    d1 = math.log(spot) / volatility + volatility / 2
    d2, density = d1 - volatility, math.exp(-d1 * d1 / 2) / math.sqrt(2 * math.pi)
    exact = (
        spot * stats.norm.cdf(d1) - stats.norm.cdf(d2),
        stats.norm.cdf(d1),
        spot * density,
    )
    terms, slopes = payoff.value_and_jacobian(spot, volatility, 5, np.arange(n))
    samples = terms, slopes["spot"], slopes["volatility"]
    for total, closed, sample in zip((price, gradient["spot"], gradient["volatility"]), exact, samples, strict=True):
        assert abs(total / n - closed) < 4 * sample.std() / math.sqrt(n)


def test_a_key_that_is_no_integer() -> None:
    with pytest.raises(CompileError, match="needs integers"):
        numbers(0.5, 1, 2)
