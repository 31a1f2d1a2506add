r"""
Plastic flow at a point of a metal
==================================

The stress in a metal follows from the strain by the radial return (J. C. Simo and R. L. Taylor, Comput. Methods Appl.
Mech. Eng. 48, 1985). Below the yield stress the metal is elastic. Above it, a scalar equation for the plastic strain
has to be solved, by iteration if the hardening saturates (E. Voce, J. Inst. Metals 74, 1948). Finite elements need the
derivative of the stress at the end of this iteration, the consistent tangent, for which Simo and Taylor gave a formula.
dualbcast gets it from the program, branch and loop included.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import derivative, differentiable_broadcast

# %%
# Constants of the size of those of an aluminium alloy, in MPa. ``flow_stress`` grows with the plastic strain up to a
# limit, and its derivative in Newton's iteration comes from ``derivative`` too.

BULK, SHEAR = 70_000.0, 26_000.0
YIELD, GAIN, RATE = 200.0, 150.0, 20.0


def flow_stress(plastic):
    return YIELD + GAIN * (1 - math.exp(-RATE * plastic))


@differentiable_broadcast(max_iterations=30)
def stress(xx, yy, zz, yz, xz, xy):
    """The six stresses for six strains, with the shear strains doubled as engineers do."""
    volume = xx + yy + zz
    strain = (xx - volume / 3, yy - volume / 3, zz - volume / 3, yz / 2, xz / 2, xy / 2)
    trial = [2 * SHEAR * e for e in strain]
    mises = math.sqrt(1.5 * (sum(s * s for s in trial) + sum(s * s for s in trial[3:])))
    shrink = 1.0
    if mises > flow_stress(0.0):
        plastic, step = 0.0, 1.0
        while abs(step) > 1e-14:
            excess = mises - 3 * SHEAR * plastic - flow_stress(plastic)
            step = excess / (3 * SHEAR + derivative(flow_stress)(plastic))
            plastic += step
        shrink = 1 - 3 * SHEAR * plastic / mises
    s = [shrink * t for t in trial]
    return BULK * volume + s[0], BULK * volume + s[1], BULK * volume + s[2], s[3], s[4], s[5]


# %%
# Stretch in x, together with shear in xy, on a grid. One launch gives six stresses and the 6 by 6 tangent everywhere.

stretch, shear = np.linspace(0, 0.012, 241), np.linspace(0, 0.02, 161)[:, np.newaxis]
strains = stretch, -stretch / 2, -stretch / 2, 0.0, 0.0, shear
sigma, J = stress.value_and_jacobian(*strains)
tangent = np.asarray(J)

# %%
# Simo and Taylor's formula, written for all points in NumPy. It takes the plastic strain from the stress, and agrees.

unit = np.array([1, 1, 1, 0, 0, 0.0])
deviator = (
    np.stack(np.broadcast_arrays(*sigma), -1) - np.mean(np.broadcast_arrays(*sigma[:3]), axis=0)[..., None] * unit
)
size = np.sqrt(np.sum(deviator**2 * (2 - unit), axis=-1))
mises = math.sqrt(1.5) * size
flows = mises > YIELD * (1 + 1e-12)
plastic = np.where(flows, -np.log(np.clip(1 - (mises - YIELD) / GAIN, 1e-9, 1)) / RATE, 0)
theta = 1 - 3 * SHEAR * plastic / np.where(flows, mises + 3 * SHEAR * plastic, 1)
theta_bar = np.where(flows, 1 / (1 + GAIN * RATE * np.exp(-RATE * plastic) / (3 * SHEAR)) - (1 - theta), 0)
normal = deviator / np.where(size > 0, size, 1)[..., None]
project = np.diag((1 + unit) / 2) - np.outer(unit, unit) / 3
formula = BULK * np.outer(unit, unit) + 2 * SHEAR * theta[..., None, None] * project
formula -= 2 * SHEAR * theta_bar[..., None, None] * normal[..., :, None] * normal[..., None, :]
assert flows.any() and not flows.all()
assert np.allclose(tangent, formula, rtol=1e-8, atol=1e-8 * BULK)

# %%
# Inside the yield surface the tangent has the stiffness of the elastic metal, and outside it drops. It drops
# most where the strain is mainly shear, because a little more of it flows on in the same direction.

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
x, y = 100 * stretch, 100 * shear[:, 0]
image = left.contourf(x, y, mises, np.arange(0, 241, 10), cmap="viridis")
fig.colorbar(image, ax=left, orientation="horizontal", label="equivalent stress (MPa)")
image = right.pcolormesh(x, y, tangent[..., 5, 5] / 1000, cmap="cividis", vmin=0, rasterized=True)
fig.colorbar(image, ax=right, orientation="horizontal", label="shear stress per shear strain (GPa)")
for axis, title in ((left, "Stress"), (right, "Consistent tangent, xy by xy")):
    axis.contour(x, y, flows, [0.5], colors="white", linewidths=1.5)
    axis.set(xlabel="stretch in x (%)", title=title)
left.set_ylabel("shear in xy (%)")
left.text(0.02, 0.1, "elastic", color="white")
left.text(0.7, 1.5, "plastic", color="black")
plt.show()
