"""Random numbers for scalar functions, as pure functions of a key and a counter in the language of these functions.

A number depends on nothing but these integers, so it is the same in any order, on any number of threads and on every
target. It is a constant to a derivative: `mu + sigma * normal(key, i)` has the partials 1 and the number.
"""

from __future__ import annotations

import math

__all__ = ["bernoulli", "exponential", "normal", "philox", "uniform"]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


_WORD = 0xFFFFFFFF
# The multipliers less 2**32, so that their products with a word fit 64 bits with a sign.
_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53 - 0x100000000, 0xCD9E8D57 - 0x100000000
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85


def philox(key: int, counter: int, stream: int = 0) -> tuple[int, int, int, int]:
    """Four random words of 32 bits: the generator Philox 4x32-10.

    Parameters
    ----------
    key, counter, stream : int
        Integers of 64 bits; of a negative one its two's complement counts. The key is a seed. The counter tells the
        elements of an array from one another, and the stream tells the numbers that one element takes.

    Returns
    -------
    tuple of int
        Four integers in [0, 2**32).

    Notes
    -----
    From J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, *Parallel random numbers: as easy as 1, 2, 3*, SC 2011.
    The counter is the lower half of the paper's, and the stream the upper half.

    Examples
    --------
    >>> [f"{word:08x}" for word in philox(0, 0)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    key_0, key_1 = key & _WORD, (key >> 32) & _WORD
    a, b, c, d = counter & _WORD, (counter >> 32) & _WORD, stream & _WORD, (stream >> 32) & _WORD
    for _ in range(10):
        p, q = _MULTIPLIER_0 * a, _MULTIPLIER_1 * c
        a, b, c, d = ((q >> 32) + c) ^ b ^ key_0, q & _WORD, ((p >> 32) + a) ^ d ^ key_1, p & _WORD
        key_0, key_1 = (key_0 + _WEYL_0) & _WORD, (key_1 + _WEYL_1) & _WORD
    return a, b, c, d


def _fraction(high: int, low: int) -> float:
    """A number in [0, 1), or [0, 1] if it is rounded to fewer bits, from 53 bits of two words."""
    return ((high >> 5) * 67108864 + (low >> 6)) * 2.0**-53


def uniform(key: int, counter: int, stream: int = 0) -> float:
    """A number that is uniform in [0, 1): a multiple of 2**-53, which float32 rounds.

    Parameters
    ----------
    key, counter, stream : int
        As for `philox`.

    Returns
    -------
    float
        It is less than 1 in float32, too, and has no derivative.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast, random

    >>> @differentiable_broadcast
    ... def jitter(x, width, seed, i):
    ...     return x + width * (random.uniform(seed, i) - 0.5)

    >>> value, jacobian = jitter.value_and_jacobian(np.zeros(3), 0.1, 7, np.arange(3))
    >>> bool((value == 0.1 * jacobian["width"]).all())
    True
    """
    high, low, _, _ = philox(key, counter, stream)
    number = _fraction(high, low)
    return number if number < 1.0 else 0.99999994  # float32 rounds the largest to 1


def normal(key: int, counter: int, stream: int = 0) -> float:
    """A number of the standard normal distribution, of size 8.6 at most.

    Parameters
    ----------
    key, counter, stream : int
        As for `philox`.

    Returns
    -------
    float
        It may differ in the last bits between targets, as their logarithms and cosines do. It has no derivative.

    Notes
    -----
    From G. E. P. Box and M. E. Muller, *A note on the generation of random normal deviates*, Annals of Mathematical
    Statistics 29(2), 1958.

    Examples
    --------
    >>> round(normal(7, 0), 12), round(normal(7, 1), 12)
    (0.229708160555, 0.632674526877)
    """
    a, b, c, d = philox(key, counter, stream)
    return math.sqrt(-2.0 * math.log(_fraction(a, b) + 2.0**-54)) * math.cos(2.0 * math.pi * _fraction(c, d))


def exponential(key: int, counter: int, stream: int = 0) -> float:
    """A number of the exponential distribution with mean 1.

    Parameters
    ----------
    key, counter, stream : int
        As for `philox`.

    Returns
    -------
    float
        It may differ in the last bits between targets, as their logarithms do. It has no derivative.

    Examples
    --------
    >>> exponential(7, 0) > 0
    True
    """
    high, low, _, _ = philox(key, counter, stream)
    return abs(math.log(_fraction(high, low) + 2.0**-54))


def bernoulli(p: float, key: int, counter: int, stream: int = 0) -> bool:
    """Whether an event of probability `p` happens. No derivative goes through it, as through any comparison.

    Parameters
    ----------
    p : float
        The probability: never for 0 or less, and always for 1 or more.
    key, counter, stream : int
        As for `philox`.

    Returns
    -------
    bool
        Whether `uniform(key, counter, stream)` is less than `p`.

    Examples
    --------
    >>> bernoulli(0.0, 7, 0), bernoulli(1.0, 7, 0)
    (False, True)
    """
    return uniform(key, counter, stream) < p
