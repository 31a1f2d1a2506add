r"""
A heat law with tabulated conductivity
======================================

The conductivity of a material is often known by a table. Here it is interpolated inside of the kernel that computes the
heat flow through a wall, whose temperatures follow from Newton's method with the exact derivatives of that flow.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import solve_banded

from dualbcast import differentiable_broadcast, tables

# %%
# The conductivity of silicon in W/m/K at temperatures in K (C. Y. Ho, R. W. Powell and P. E. Liley, J. Phys. Chem. Ref.
# Data 1, 279, 1972). A whole array does not broadcast: each element looks at all of it.

temperature = np.array([100.0, 150.0, 200.0, 250.0, 300.0, 400.0, 500.0, 600.0, 800.0, 1000.0])
conductivity = np.array([884.0, 409.0, 264.0, 191.0, 148.0, 98.9, 76.2, 61.9, 42.2, 31.2])


@differentiable_broadcast(whole=("table", "values"))
def flow(left, right, width, table, values):
    return tables.interp(0.5 * (left + right), table, values) * (left - right) / width


# %%
# In equilibrium the flow into each slice of the wall is the flow out of it. The Jacobian of that is tridiagonal, and
# its diagonals are partials of the flow.

slices, width = 200, 1e-3
T = np.linspace(900.0, 120.0, slices + 1)
for iteration in range(20):  # noqa: B007
    q, J = flow.value_and_jacobian(T[:-1], T[1:], width / slices, temperature, conductivity, wrt=("left", "right"))
    excess = q[1:] - q[:-1]
    if np.abs(excess).max() < 1e-9 * np.abs(q).max():
        break
    bands = np.zeros((3, slices - 1))
    bands[0, 1:] = J["right"][1:-1]
    bands[1] = J["left"][1:] - J["right"][:-1]
    bands[2, :-1] = -J["left"][1:-1]
    T[1:-1] -= solve_banded((1, 1), bands, excess)
steps = np.array([1e-4, -1e-4])[:, np.newaxis]
above, below = flow(T[:-1] + steps, T[1:], width / slices, temperature, conductivity)
assert np.allclose((above - below) / 2e-4, J["left"], rtol=1e-4)
print(f"{iteration} iterations, {q.mean() / 1e6:.1f} MW/m²")

# %%
# The flow is the integral of the conductivity over the temperature (Kirchhoff's transformation), which the trapezoids
# of the table give exactly.

knots = np.unique(np.concatenate([temperature[(temperature > T[-1]) & (temperature < T[0])], T[[0, -1]]]))
exact = np.trapezoid(np.interp(knots, temperature, conductivity), knots) / width
assert abs(q.mean() / exact - 1) < 1e-4

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
axes[0].loglog(temperature, conductivity, "o-")
axes[0].set(title="Silicon", xlabel="temperature (K)", ylabel="conductivity (W/m/K)")
axes[1].plot(np.linspace(0, 1e3 * width, slices + 1), T)
axes[1].set(title="Inside of the wall", xlabel="depth (mm)", ylabel="temperature (K)")
plt.show()
