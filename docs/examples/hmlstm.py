"""A hierarchical multiscale LSTM over characters: its cell, its three layers, its loss.

The model is that of J. Chung, S. Ahn, Y. Bengio, "Hierarchical Multiscale Recurrent Neural Networks" (2016,
arXiv:1609.01704). docs/guides/hmlstm.md explains it, and hmlstm_lm.py trains it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualbcast import custom_partials, differentiable_broadcast, graph
from dualbcast.special import sigmoid

Array = Any  # a NumPy array or, while a gradient is taken, a Variable
Parameters = dict[str, Array]
# c, h and z of each layer. The last layer ends no segments: its z is the number 0.
Memory = list[tuple[Array, Array, Array]]

LAYERS = 3


@custom_partials(lambda s, slope, _: (slope / 2 if abs(slope * s) < 1 else 0.0, 0))
def step(s, slope):  # noqa: ARG001 its derivative has the slope
    """1 where s is positive, else 0; the derivative is that of the hard sigmoid, (slope * s + 1) / 2."""
    return 1.0 if s > 0 else 0.0


@differentiable_broadcast
def boundary(s, slope, z_below):
    """1 where a segment ends, else 0. A layer that is a copy has seen nothing new, and ends nothing."""
    return z_below * step(s, slope)


@custom_partials(lambda z, one, zero, _: (one - zero, z, 1.0 - z))
def choose(z, one, zero):
    """`one` where z is 1, `zero` where it is 0; the derivative in z is what the other choice would change."""
    return one if z == 1 else zero


@differentiable_broadcast
def cell(c, h, f, i, o, g, z, z_below):
    """One unit of a layer: it is flushed where z is 1, else updated where z_below is 1, else copied."""
    write = sigmoid(i) * math.tanh(g)
    new_c = choose(z, write, choose(z_below, sigmoid(f) * c + write, c))
    shown = sigmoid(o) * math.tanh(new_c)
    return new_c, choose(z, shown, choose(z_below, shown, h))


@differentiable_broadcast
def mix(e0, e1, e2, g0, g1, g2):
    """One unit of the output's embedding: what each layer has to say, through its gate; then rectified."""
    return max(sigmoid(g0) * e0 + sigmoid(g1) * e1 + sigmoid(g2) * e2, 0.0)


def initial(shares: Array, hidden: int, seed: int, dtype: Any = np.float32) -> Parameters:
    """Parameters to start from: a model that knows how frequent each character is, and nothing else."""
    draw = np.random.default_rng(seed)

    def normal(scale: float, *shape: int) -> Array:
        return draw.normal(0, scale, shape).astype(dtype)

    scale = hidden**-0.5
    p: Parameters = {}
    for layer in range(LAYERS):
        # The columns are f, i, o, g and, but for the last layer, one that detects boundaries.
        columns = 4 * hidden + (layer < LAYERS - 1)
        p[f"own{layer}"] = normal(scale, hidden, columns)
        p[f"below{layer}"] = normal(scale, hidden, columns) if layer else normal(0.3, len(shares), columns)
        if layer < LAYERS - 1:
            p[f"above{layer}"] = normal(scale, hidden, columns)
        p[f"bias{layer}"] = np.where(np.arange(columns) < hidden, 1, 0).astype(dtype)
        p[f"gate{layer}"] = normal(scale, hidden, LAYERS)
        p[f"mix{layer}"] = normal(scale, hidden, hidden)
    return {**p, "output": normal(scale, hidden, len(shares)), "bias": np.log(shares).astype(dtype)}


def forgotten(rows: int, hidden: int, dtype: Any = np.float32) -> Memory:
    """The memory before the first character."""
    zeros, none = np.zeros((rows, hidden), dtype), np.zeros((rows, 1), dtype)
    return [(zeros, zeros, none if layer < LAYERS - 1 else 0.0) for layer in range(LAYERS)]


def advance(p: Parameters, x: Array, memory: Memory, slope: Array) -> Memory:
    """One step of all layers; `x` is the character's part of the pre-activations of the first layer."""
    after: Memory = []
    for layer, (c, h, z) in enumerate(memory):
        s = h @ p[f"own{layer}"] + p[f"bias{layer}"]
        if layer == 0:
            s, z_below = s + x, 1.0
        else:
            _, h_below, z_below = after[-1]
            s = s + z_below * (h_below @ p[f"below{layer}"])
        if layer < LAYERS - 1:
            s = s + z * (memory[layer + 1][1] @ p[f"above{layer}"])
        hidden = h.shape[1]
        f, i, o, g, *detector = graph.split(s, range(hidden, s.shape[1], hidden), axis=1)
        c, h = cell(c, h, f, i, o, g, z, z_below)
        after.append((c, h, boundary(detector[0], slope, z_below) if detector else z))
    return after


def read(p: Parameters, x: Array, memory: Memory, slope: Array) -> tuple[Array, Memory, list[list[Array]]]:
    """Read characters, given as one-hot vectors of shape (time, rows, symbols).

    Returns
    -------
    scores : array
        The logits of the next character, at each time.
    memory : list
        The memory after the last character.
    boundaries : list of list of array
        The z of each layer but the last, at each time.
    """
    past: list[Memory] = []
    for each in graph.unstack(x @ p["below0"]):
        memory = advance(p, each, memory, slope)
        past.append(memory)
    h = [graph.stack([each[layer][1] for each in past]) for layer in range(LAYERS)]
    gates = graph.split(sum(h[layer] @ p[f"gate{layer}"] for layer in range(LAYERS)), LAYERS, axis=2)
    e = mix(*[h[layer] @ p[f"mix{layer}"] for layer in range(LAYERS)], *gates)
    boundaries = [[z for _, _, z in each[:-1]] for each in past]
    return e @ p["output"] + p["bias"], memory, boundaries


def loss(
    p: Parameters, x: Array, memory: Memory, slope: Array, price: Array
) -> tuple[Array, tuple[Array, Memory, list[list[Array]]]]:
    """The loss: bits per character and a price for each boundary; then the bits alone, and the results of `read`.

    The bits are the mean of -log2 p(next character). The price keeps layers from ending a segment at every character;
    in the second one, whose segments are longer, it is a third.
    """
    scores, memory, boundaries = read(p, x[:-1], memory, slope)
    surprise = graph.logsumexp(scores, axis=-1) - graph.sum(scores * x[1:], axis=-1)
    bits = graph.mean(surprise) / math.log(2)
    z1, z2 = (graph.stack(z) for z in zip(*boundaries, strict=True))
    return bits + price * graph.mean(z1 + z2 / 3), (bits, memory, boundaries)
