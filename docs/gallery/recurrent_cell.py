r"""
Gradients through the decisions of a recurrent cell
===================================================

The cell of a hierarchical multiscale LSTM (J. Chung, S. Ahn, Y. Bengio, ICLR 2017) decides at every step and for every
unit between three outcomes. It updates its memory like an ordinary LSTM, copies it, or flushes it at the end of a
segment. The gradient of a copied memory is exactly 1, and that of a flushed one is exactly 0. dualbcast compiles the
three branches to one kernel, which gives the memory and its partial derivatives by the branch that each unit takes.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap, LogNorm

from dualbcast import differentiable_broadcast
from dualbcast.special import sigmoid

# %%
# The scalar function has one unit at one step. ``ended`` says that this layer ended its segment one step before, and
# ``below`` that the layer below ends its segment now.


@differentiable_broadcast
def memory(c, f, i, g, ended, below):
    if ended:  # flush
        return sigmoid(i) * math.tanh(g)
    if not below:  # copy
        return c
    return sigmoid(f) * c + sigmoid(i) * math.tanh(g)  # update


# %%
# A sequence of 80 steps for 24 units that end their segments at random. Each step is one launch, which gives the next
# memory and four partial derivatives.

rng = np.random.default_rng(5)
steps, units = 80, 24
gates = rng.normal([[[2.0]], [[0.0]], [[0.0]]], 1.0, (3, steps, units))  # a forget gate starts open: its mean is 2
ended = rng.random((steps, units)) < 0.02
below = rng.random((steps, units)) < 0.3


def run(c):
    slopes = []
    for t in range(steps):
        c, jacobian = memory.value_and_jacobian(c, *gates[:, t], ended[t], below[t])
        slopes.append(jacobian)
    return c, slopes


start = rng.standard_normal(units)
end, slopes = run(start)

# %%
# The partial derivatives agree with those derived by hand for each outcome, to the last digits or exactly.

forget, candidate = 1 / (1 + np.exp(-gates[0])), np.tanh(gates[2])
by_hand = np.where(ended, 0.0, np.where(below, forget, 1.0))
dc = np.array([J["c"] for J in slopes])
assert np.allclose(dc, by_hand, rtol=1e-14, atol=0)
assert np.all(dc[ended] == 0) and np.all(dc[~ended & ~below] == 1)
dg = np.array([J["g"] for J in slopes])
assert np.allclose(dg, np.where(ended | below, (1 - candidate**2) / (1 + np.exp(-gates[1])), 0.0), rtol=1e-12, atol=0)

# %%
# Going back through the sequence, the gradient of the last memory in each earlier one is a product of ``J["c"]``. It is
# compared with central differences through all 80 steps.

back = np.ones((steps + 1, units))
for t in reversed(range(steps)):
    back[t] = slopes[t]["c"] * back[t + 1]
differences = (run(start + 1e-3)[0] - run(start - 1e-3)[0]) / 2e-3
assert np.allclose(back[0], differences, rtol=1e-9, atol=1e-12)

# %%
# Where the cell copies, the gradient passes unchanged; a flush ends it. A gradient of exactly 0 is white.

outcome = np.where(ended, 2, np.where(below, 0, 1))
fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
image = top.imshow(
    outcome.T, aspect="auto", cmap=ListedColormap(["#0072B2", "#DDDDDD", "#D55E00"]), vmin=-0.5, vmax=2.5
)
bar = fig.colorbar(image, ax=top, ticks=[0, 1, 2])
bar.ax.set_yticklabels(["update", "copy", "flush"])
top.set(ylabel="unit", title="What each unit decides")
image = bottom.imshow(np.where(back > 0, back, np.nan)[1:].T, aspect="auto", cmap="viridis", norm=LogNorm(1e-3, 1))
fig.colorbar(image, ax=bottom, extend="min")
bottom.set(xlabel="step", ylabel="unit", title="Gradient of the last memory in the memory after each step")
plt.show()
