r"""
Tuning the noise schedule of a diffusion model in JAX
=====================================================

A diffusion model makes an image from noise in a few steps. The logarithm of its ratio of signal to noise falls along a
schedule: a cosine (A. Nichol and P. Dhariwal, ICML 2021), shifted for larger images (E. Hoogeboom et al., ICML 2023),
and clipped at both ends. For data with a normal distribution the result of the sampler DDIM (J. Song et al., ICLR 2021)
has a closed form, so that the schedule can be tuned. The scalar function has branches where the logarithm is infinite.
dualbcast makes it a primitive of JAX, through which ``jax.jit`` and ``jax.grad`` go.
"""

import math

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast
from dualbcast.special import sigmoid

jax.config.update("jax_enable_x64", True)

# %%
# The schedule runs from t = 1, where all is noise, to t = 0. ``stretch`` puts more of the steps on one end.


def log_snr(t, shift, stretch):
    if t <= 0:
        return 15.0
    if t >= 1:
        return -15.0
    return min(max(-2 * math.log(math.tan(math.pi / 2 * t**stretch)) + shift, -15.0), 15.0)


@differentiable_broadcast
def log_growth(t, following, variance, shift, stretch):
    """The logarithm of the factor by which one step of DDIM scales data of this variance."""
    now, then = log_snr(t, shift, stretch), log_snr(following, shift, stretch)
    signal, noise = math.sqrt(sigmoid(now)), math.sqrt(sigmoid(-now))
    next_signal, next_noise = math.sqrt(sigmoid(then)), math.sqrt(sigmoid(-then))
    return math.log((next_signal * signal * variance + next_noise * noise) / (signal**2 * variance + noise**2))


# %%
# The variances of natural images fall with the square of the frequency. Over all steps, a factor for each frequency is
# to turn noise of variance 1 into data. The loss is the mean squared error of its logarithm.

frequency = np.arange(1, 65)
variance = 4 / frequency**2.0
times = np.linspace(1, 0, 13)[:, np.newaxis]


def errors(parameters):
    growth = log_growth(times[:-1], times[1:], variance, parameters[0], parameters[1])
    return jnp.sum(growth, axis=0) - jnp.log(variance) / 2


@jax.jit
def loss(parameters):
    return jnp.mean(errors(parameters) ** 2)


# %%
# JAX alone needs ``where`` twice: once for the result, and once to keep the side that is not taken away from the
# infinite slope at t = 0, which would make the gradient NaN. Written so, its own derivatives are an independent check.


def reference(parameters):
    shift, stretch = parameters
    inside = jnp.where((times > 0) & (times < 1), times, 0.5)
    snr = jnp.clip(-2 * jnp.log(jnp.tan(jnp.pi / 2 * inside**stretch)) + shift, -15, 15)
    snr = jnp.where(times <= 0, 15.0, jnp.where(times >= 1, -15.0, snr))
    a, s = jnp.sqrt(jax.nn.sigmoid(snr)), jnp.sqrt(jax.nn.sigmoid(-snr))
    growth = (a[1:] * a[:-1] * variance + s[1:] * s[:-1]) / (a[:-1] ** 2 * variance + s[:-1] ** 2)
    return jnp.mean((jnp.sum(jnp.log(growth), axis=0) - jnp.log(variance) / 2) ** 2)


start = jnp.array([0.0, 1.0])
gradient, hessian = jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))
reference_gradient, reference_hessian = jax.jit(jax.grad(reference)), jax.jit(jax.hessian(reference))
for point in (start, jnp.array([2.0, 1.5])):
    assert np.isclose(loss(point), reference(point), rtol=1e-12)
    assert np.allclose(gradient(point), reference_gradient(point), rtol=1e-9)
    assert np.allclose(hessian(point), reference_hessian(point), rtol=1e-8)

# %%
# Newton's method finds the best shift and stretch in a few steps.

best = start
while np.linalg.norm(gradient(best)) > 1e-10:
    best = best - np.linalg.solve(hessian(best), gradient(best))
assert loss(best) < loss(start) / 20 and np.all(np.linalg.eigvalsh(hessian(best)) > 0)

# %%
# With twelve steps the cosine loses the fine detail of an image. The tuned schedule keeps far more of it.

schedule = differentiable_broadcast(log_snr)
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for parameters, name, colour in ((start, "cosine", "#E69F00"), (best, "tuned", "#0072B2")):
    left.plot(times, schedule(times, *map(float, parameters)), "o-", color=colour, markersize=4, label=name)
    right.plot(frequency, 100 * np.exp(errors(parameters)), color=colour, linewidth=2, label=name)
left.set(xlabel="time t", ylabel="log of signal to noise", title="Noise schedule in 12 steps", xlim=(1, 0))
right.axhline(100, color="#999999", linestyle=":", label="data")
right.set(xlabel="frequency", ylabel="amplitude (%)", title="What the sampler makes", ylim=(0, 115))
for axis in (left, right):
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
