r"""
The Brusselator and its sparse Jacobian
=======================================

I. Prigogine and R. Lefever's model of an oscillating reaction, with diffusion along a line (E. Hairer and G. Wanner,
*Solving Ordinary Differential Equations II*, 1996, section IV.10). A thousand stiff equations need an implicit solver,
and this needs their Jacobian. An equation depends on four of the unknowns: dualbcast differentiates one scalar function
of a point and its neighbours, and one product with a sparse matrix puts the partial derivatives in their places.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from scipy.integrate import solve_ivp

from dualbcast import differentiable_broadcast

# %%
# The rates of the two substances at a point, and the distance of the points. At both ends u = 1 and v = 3.

n, feed, decay, diffusion = 500, 1.0, 3.0, 0.02
flow = diffusion * (n + 1) ** 2


@differentiable_broadcast
def rates(u_left, u, u_right, v_left, v, v_right):
    made = u * u * v
    du = feed + made - (decay + 1) * u + flow * (u_left - 2 * u + u_right)
    return du, decay * u - made + flow * (v_left - 2 * v + v_right)


# %%
# ``gather`` takes the neighbours of all points from the vector of unknowns. So the Jacobian is that of the scalar
# function, as a sparse matrix with a column for each element of each argument, times ``gather``.

near = sparse.vstack([sparse.eye_array(n, k=k) for k in (-1, 0, 1)])
gather = sparse.block_diag([near, near], format="csr")
ends = np.zeros((6, n))
ends[0, 0] = ends[2, -1] = 1.0
ends[3, 0] = ends[5, -1] = 3.0


def fun(_, y):
    return np.concatenate(rates(*((gather @ y).reshape(6, n) + ends)))


def jac(_, y):
    return rates.jacobian(*((gather @ y).reshape(6, n) + ends)).sparse() @ gather


# %%
# Of a million elements 3996 are there, and they are those of differences.

x = np.arange(1, n + 1) / (n + 1)
start = np.concatenate([1 + np.sin(2 * np.pi * x), np.full(n, 3.0)])
J = jac(0, start)
step = 1e-6 * np.cos(np.arange(2 * n))
assert np.allclose(J @ step, (fun(0, start + step) - fun(0, start - step)) / 2, rtol=1e-6, atol=1e-9)
assert J.nnz == 3996

# %%
# The solver takes the matrix as it is. Without one it differences the equations, and must be told which elements are
# there; the solution is the same.

times = np.linspace(0, 10, 201)
solved = solve_ivp(fun, (0, 10), start, "BDF", times, jac=jac, rtol=1e-6, atol=1e-8)
other = solve_ivp(fun, (0, 10), start, "Radau", times[::50], jac_sparsity=J, rtol=1e-6, atol=1e-8)
print(f"{solved.nfev} evaluations of the rates with our Jacobian, {other.nfev} with differences")
assert np.allclose(solved.y[:, ::50], other.y, rtol=1e-3, atol=1e-3)

# %%
# The concentration of u falls and rises along the line.

fig, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
mesh = axis.pcolormesh(times, x, solved.y[:n], shading="nearest", rasterized=True)
fig.colorbar(mesh, label="concentration of u")
axis.set(title="Brusselator with diffusion", xlabel="time", ylabel="place")
plt.show()
