r"""
Stiff kinetics and the sensitivity to rate constants
====================================================

Robertson's reactions (H. H. Robertson, in *Numerical Analysis: An Introduction*, 1966) convert A to C through a little
of B, at rates that differ by nine orders of magnitude. Stiff solvers such as ``scipy.integrate.solve_ivp`` need the
Jacobian of the rates. Here the state is extended by its sensitivity to a rate constant, whose own rate is a directional
derivative. dualbcast takes this derivative inside the scalar function, and differentiates once more for the Jacobian.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

from dualbcast import differentiable_broadcast, value_and_derivative

# %%
# The rates are written once. ``extended`` moves the concentrations along their sensitivities and the constants along
# one of them, and takes the derivative at the start of this path.


def rates(a, b, c, k1, k2, k3):
    back, to_c = k3 * b * c, k2 * b * b
    return -k1 * a + back, k1 * a - back - to_c, to_c


@differentiable_broadcast(wrt=("a", "b", "c", "da", "db", "dc"))
def extended(a, b, c, da, db, dc, k1, k2, k3, dk1, dk2, dk3):
    def path(t):
        return rates(a + t * da, b + t * db, c + t * dc, k1 + t * dk1, k2 + t * dk2, k3 + t * dk3)

    value, tangent = value_and_derivative(path)(0.0)
    return (*value, *tangent)


# %%
# ``np.asarray(J)`` is the exact 6 by 6 Jacobian. Its blocks on the diagonal are the Jacobian of the rates, which is
# easily written by hand.

constants = k1, k2, k3 = np.array([0.04, 3e7, 1e4])
b, c = 2e-5, 0.3
J = np.asarray(extended.jacobian(0.7, b, c, 0.0, 0.0, 0.0, *constants, 1, 0, 0))
by_hand = [[-k1, k3 * c, k3 * b], [k1, -k3 * c - 2 * k2 * b, -k3 * b], [0, 2 * k2 * b, 0]]
assert np.allclose(J[:3, :3], by_hand, rtol=1e-14) and np.allclose(J[3:, 3:], by_hand, rtol=1e-14)

# %%
# One solution for each constant, over seventeen decades of time.

times = 0.4 * 10 ** np.linspace(-6, 11, 341)
start = np.array([1.0, 0, 0, 0, 0, 0])  # A alone; its start does not depend on the constants


def solve(direction):
    def rate(_, y):
        return np.array(extended(*y, *constants, *direction))

    def jacobian(_, y):
        return np.asarray(extended.jacobian(*y, *constants, *direction))

    return solve_ivp(rate, (0, times[-1]), start, "BDF", times, jac=jacobian, rtol=1e-6, atol=1e-13)


solutions = [solve(direction) for direction in np.eye(3)]
a, b, c = solutions[0].y[:3]
sensitivities = np.array([solution.y[3:] for solution in solutions])  # constant, substance, time
print(*(f"{solution.nfev} rates and {solution.njev} Jacobians" for solution in solutions), sep="\n")

# %%
# The solution and its sensitivities at t = 0.4 are those that the manual of CVODES prints for its example (Sundials,
# ``cvsRoberts_FSA_dns``). At all times they satisfy a law of scaling: if all constants doubled, all would happen in
# half the time, so :math:`\sum_j k_j\, \partial y / \partial k_j = t\, \mathrm{d}y/\mathrm{d}t`.

(at,) = np.flatnonzero(np.isclose(times, 0.4))
assert np.allclose([a[at], b[at], c[at]], [9.8517e-01, 3.3864e-05, 1.4794e-02], rtol=1e-4)
published = [[-3.5595e-01, 3.9025e-04, 3.5556e-01], [-1.5833e-11, -5.29e-13, 1.6362e-11]]
assert np.allclose(sensitivities[:2, :, at], published, rtol=3e-4)
assert np.allclose(sensitivities[2, :, at], [9.5431e-08, -2.1309e-10, -9.5218e-08], rtol=3e-4)
scaled = constants[:, np.newaxis, np.newaxis] * sensitivities
assert np.allclose(scaled.sum(axis=0)[0], times * rates(a, b, c, *constants)[0], atol=1e-4)

# %%
# In the end A vanishes, whatever the constants are. The amount of A is most sensitive to them around t = 1000.

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
for values, name, colour in ((a, "A", "#0072B2"), (1e4 * b, "B · 10⁴", "#D55E00"), (c, "C", "#009E73")):
    top.semilogx(times, values, color=colour, linewidth=2, label=name)
top.set(ylabel="concentration / initial A", title="Robertson's reactions")
labels = r"$k_1$: A → B", r"$k_2$: 2 B → B + C", r"$k_3$: B + C → A + C"
for values, name, colour in zip(scaled[:, 0], labels, ("#CC79A7", "#000000", "#E69F00"), strict=True):
    bottom.semilogx(times, values / 100, color=colour, linewidth=2, label=name)
bottom.axhline(0, color="#999999", linewidth=0.8)
bottom.set(xlabel="time (s)", ylabel="change of A / initial A", title="If a rate constant is larger by 1 %")
for axis in (top, bottom):
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
