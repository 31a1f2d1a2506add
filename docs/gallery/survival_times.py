r"""
Maximum likelihood, with errors from the exact Hessian
======================================================

Times to failure, some of which were still running when the study ended, are a case for a branch: a failure adds the
logarithm of its density to the likelihood, and a time that was cut off adds that of the probability to be longer
(J. D. Kalbfleisch and R. L. Prentice, *The Statistical Analysis of Failure Time Data*, 2002, section 3.4). The scale of
their Weibull distribution depends on covariates by a matrix product, which is work for ``dualbcast.graph``.
``graph.hessian`` gives the minimizer its steps, and the estimates their standard errors.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from dualbcast import differentiable_broadcast, graph

# %%
# The distribution for one time, and the negative logarithm of the likelihood of all.


@differentiable_broadcast
def log_likelihood(time, failed, log_scale, log_shape):
    power = math.exp(log_shape) * (math.log(time) - log_scale)
    return log_shape + power - math.log(time) - math.exp(power) if failed else -math.exp(power)


def loss(parameters, times, failed, covariates):
    return -np.sum(log_likelihood(times, failed, covariates @ parameters[:-1], parameters[-1]))


# %%
# Twenty thousand times with known parameters. The study ends at 4.

random = np.random.default_rng(2026)
truth = np.array([1.0, -0.5, 0.25, math.log(1.5)])
covariates = np.column_stack([np.ones(20_000), random.normal(size=(20_000, 2))])
unlimited = np.exp(covariates @ truth[:-1]) * random.weibull(1.5, 20_000)
data = np.minimum(unlimited, 4.0), unlimited < 4.0, covariates

# %%
# SciPy's minimizer takes both derivatives. The estimates are within their errors.

gradient, hessian = graph.grad(loss), graph.hessian(loss)
start = np.array([np.mean(np.log(data[0])), 0, 0, 0])
found = minimize(loss, start, data, "trust-exact", jac=gradient, hess=hessian, options={"gtol": 1e-3})
estimate, curvature = found.x, found.hess
errors = np.sqrt(np.diag(np.linalg.inv(curvature)))
print(f"{found.nit} steps")
for name, *row in zip(("constant", "first", "second", "log shape"), estimate, errors, truth, strict=True):
    print("{:9} {:7.4f} ± {:.4f}, true {:.4f}".format(name, *row))
assert found.success and (np.abs(estimate - truth) < 4 * errors).all()

# %%
# With :math:`w = e^{\text{power}}` and k the shape, the Hessian in the coefficients is known:
# :math:`k^2 \sum w\, x x^T`.

times, failed, x = data
shape = math.exp(estimate[-1])
w = (times * np.exp(-x @ estimate[:-1])) ** shape
assert np.allclose(curvature[:3, :3], shape**2 * (x.T * w) @ x, rtol=1e-8)
assert np.isclose(curvature[3, 3], np.sum(w * np.log(w) ** 2 + (w - failed) * np.log(w)), rtol=1e-8)

# %%
# The errors are those of estimates from many samples: here each of 200 has 500 of the times, and one step of Newton's.
# ``graph.vmap`` takes these steps side by side.


def step(*sample):
    return gradient(estimate, *sample), hessian(estimate, *sample)


drawn = random.integers(20_000, size=(200, 500))
slopes, curvatures = graph.vmap(step)(*[each[drawn] for each in data])
samples = estimate - np.linalg.solve(curvatures, slopes[..., None])[..., 0]
assert np.allclose(samples.std(axis=0), errors * math.sqrt(40), rtol=0.2)

fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for axis, at, title in ((axes[0], 1, "First coefficient"), (axes[1], 3, "Logarithm of the shape")):
    grid = estimate[at] + np.linspace(-4, 4, 200) * errors[at] * math.sqrt(40)
    normal = np.exp(-(((grid - estimate[at]) / errors[at]) ** 2) / 80) / errors[at] / math.sqrt(80 * math.pi)
    axis.hist(samples[:, at], 20, density=True, alpha=0.4, label="200 samples")
    axis.plot(grid, normal, label="from the Hessian")
    axis.set(title=title, xlabel="estimate from 500 times")
axes[0].set_ylabel("density")
axes[1].legend()
plt.show()
