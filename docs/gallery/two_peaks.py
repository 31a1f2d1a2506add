r"""
Least squares with the parameters in one array
==============================================

SciPy's solvers keep all parameters in one array. A function can take it as it is: with a signature, `p` is a vector of
the function and not an array that broadcasts, and the Jacobian has a column for each of its elements.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares

from dualbcast import differentiable_broadcast

# %%
# Two overlapping lines of a spectrum on a sloping background: the height, the place and the width of each line, and two
# numbers for the background. `n` is the length of whatever array is passed.


@differentiable_broadcast(signature="(),(),(n)->()")
def misfit(x, y, p):
    model = p[-2] + p[-1] * x
    for line in range((len(p) - 2) // 3):
        height, place, width = p[3 * line : 3 * line + 3]
        model += height * math.exp(-0.5 * ((x - place) / width) ** 2)
    return model - y


x = np.linspace(0, 10, 400)
true = np.array([3.0, 4.2, 0.6, 2.0, 5.8, 0.9, 0.5, 0.1])
y = misfit(x, 0.0, true) + 0.05 * np.random.default_rng(0).standard_normal(x.size)

# %%
# The solver asks for residuals, of shape (400,), and for the Jacobian, of shape (400, 8).

start = np.array([2.0, 4.0, 1.0, 2.0, 6.0, 1.0, 0.0, 0.0])
fit = least_squares(lambda p: misfit(x, y, p), start, jac=lambda p: misfit.jacobian(x, y, p, wrt="p")["p"])
covariance = np.linalg.inv(fit.jac.T @ fit.jac) * 2 * fit.cost / (x.size - true.size)
for found, error, value in zip(fit.x, np.sqrt(np.diag(covariance)), true, strict=True):
    print(f"{found:7.4f} ± {error:.4f}, true {value}")

step = 1e-6 * np.eye(true.size)
columns = [(misfit(x, y, fit.x + h) - misfit(x, y, fit.x - h)) / 2e-6 for h in step]
assert np.allclose(fit.jac, np.stack(columns, axis=1), rtol=1e-6, atol=1e-8)
by_differences = least_squares(lambda p: misfit(x, y, p), start, jac="3-point", xtol=1e-12)
assert np.allclose(fit.x, by_differences.x, rtol=1e-6)
assert np.all(np.abs(fit.x - true) < 4 * np.sqrt(np.diag(covariance)))

# %%
# The same function draws the model, and each line by itself.

fig, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.plot(x, y, ".", color="#999999", markersize=3, label="data")
axis.plot(x, misfit(x, 0.0, fit.x), color="#0072B2", linewidth=2, label="fit")
for at, color in ((0, "#D55E00"), (3, "#009E73")):
    axis.plot(x, misfit(x, 0.0, np.r_[fit.x[at : at + 3], fit.x[-2:]]), "--", color=color, label=f"line {at // 3 + 1}")
axis.set(xlabel="energy", ylabel="counts", title="Two lines of a spectrum")
axis.legend(frameon=False)
plt.show()
