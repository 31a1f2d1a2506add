r"""
Distances to the Mandelbrot set
===============================

A point *c* outside the Mandelbrot set has a potential, :math:`G = \lim 2^{-n} \log|z_n|` with
:math:`z_{n+1} = z_n^2 + c`. The ratio :math:`G / |\nabla G|` estimates the distance to the set (Y. Fisher, in *The
Science of Fractal Images*, 1988), and shows filaments that are much thinner than a pixel. The usual program carries a
recurrence for the derivative by hand. dualbcast carries dual numbers through the loop, and each point leaves it when it
has escaped.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast

# %%
# The scalar function is that of a point, in real numbers. Points that have not escaped after 500 iterations are taken
# for members of the set. Their potential is 0, and so is its gradient.


@differentiable_broadcast
def potential(x, y):
    u, v, weight = 0.0, 0.0, 1.0
    for _ in range(500):
        u, v, weight = u * u - v * v + x, 2 * u * v + y, weight / 2
        if u * u + v * v > 1e6:
            return weight * math.log(u * u + v * v) / 2
    return 0.0


def view(x, y, width, pixels=360):
    """Coordinates, potential, distance and the gradient's direction on a square."""
    side = np.linspace(-width / 2, width / 2, pixels)
    value, jacobian = potential.value_and_jacobian(x + side, (y + side)[:, np.newaxis])
    dx, dy = jacobian["x"], jacobian["y"]
    slope = np.hypot(dx, dy)
    distance = np.divide(value, slope, out=np.zeros_like(value), where=slope > 0)
    return x + side, y + side, distance, np.arctan2(dy, dx)


# %%
# The recurrence by hand, with NumPy's complex numbers: :math:`z' \leftarrow 2 z z' + 1`, and the distance is
# :math:`|z| \log|z| / |z'|`. Where orbits are chaotic, rounding can
# make the two programs differ; elsewhere they agree.


def by_hand(c):
    z, dz, distance, active = np.zeros_like(c), np.zeros_like(c), np.zeros(c.shape), np.ones(c.shape, bool)
    for _ in range(500):
        z[active], dz[active] = z[active] ** 2 + c[active], 2 * z[active] * dz[active] + 1
        escaped = active & (np.abs(z) > 1e3)
        distance[escaped] = np.abs(z[escaped]) * np.log(np.abs(z[escaped])) / np.abs(dz[escaped])
        active &= ~escaped
    return distance


views = view(-0.7, 0.0, 2.8), view(-0.7465, 0.0975, 0.012)
for x, y, distance, _ in views:
    expected = by_hand(x[::8] + 1j * y[::8, np.newaxis])
    near = np.isclose(distance[::8, ::8], expected, rtol=1e-6, atol=0)
    assert near.mean() > 0.998 and np.count_nonzero(expected) > 500

# %%
# The brightness is the logarithm of the distance, lit from one side by the direction of the gradient.

fig, axes = plt.subplots(1, 2, figsize=(8, 4.1), layout="constrained")
for axis, (x, y, distance, direction), title in zip(axes, views, ("The whole set", "A detail"), strict=True):
    width = x[-1] - x[0]
    height = np.log10(np.maximum(distance / width, 1e-5))
    light = height + np.where(distance > 0, 0.6 * np.cos(direction - 2.2), 0)
    axis.imshow(light, cmap="magma", origin="lower", extent=(x[0], x[-1], y[0], y[-1]), vmin=-4.2, vmax=0.3)
    axis.set(title=title, xlabel="real part of c")
    axis.locator_params(axis="x", nbins=5)
axes[0].set_ylabel("imaginary part of c")
plt.show()
