r"""
A custom loss for a network in PyTorch
======================================

The general loss of J. T. Barron (CVPR 2019) goes from squares to losses that ignore outliers, by one number:

.. math:: \rho(x, \alpha) = \frac{|\alpha - 2|}{\alpha}
   \left(\left(\frac{(x/c)^2}{|\alpha - 2|} + 1\right)^{\alpha/2} - 1\right).

Its formula divides by zero at :math:`\alpha = 2` and at :math:`\alpha = 0`, where the loss is a limit. Written with
``torch.where``, all its gradients would be NaN there. Here the cases are branches of a scalar function. Called on
tensors, dualbcast gives tensors, and PyTorch's autograd goes through them.
"""

import math

import matplotlib.pyplot as plt
import torch

from dualbcast import differentiable_broadcast

# %%
# The function is the text of the paper, case by case.


@differentiable_broadcast(wrt=("x", "c"))
def general_loss(x, alpha, c):
    square = (x / c) ** 2
    if alpha == 2:
        return square / 2
    if alpha == 0:
        return math.log1p(square / 2)
    if math.isinf(alpha):
        return -math.expm1(-square / 2)
    distance = abs(alpha - 2)
    return distance / alpha * ((square / distance + 1) ** (alpha / 2) - 1)


# %%
# The gradient is compared with the one that the paper gives, for all cases in one call, and with PyTorch's own check by
# finite differences.

alphas = torch.tensor([[2.0], [1.0], [0.0], [-2.0], [-math.inf]], dtype=torch.float64)
x = torch.linspace(-6, 6, 241, dtype=torch.float64, requires_grad=True)
loss = general_loss(x, alphas, 1.0)
slopes = torch.stack([torch.autograd.grad(row.sum(), x, retain_graph=True)[0] for row in loss])
with torch.no_grad():
    general = x * (x * x / (2 - alphas) + 1) ** (alphas / 2 - 1)
    published = torch.stack([x, general[1], 2 * x / (x * x + 2), general[3], x * torch.exp(-x * x / 2)])
assert torch.allclose(slopes, published, rtol=1e-12, atol=1e-15)
scale = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
assert torch.autograd.gradcheck(lambda x, c: general_loss(x, alphas, c), (x[::20].detach().requires_grad_(), scale))

# %%
# Noisy points of a sine, of which 30 % are wrong, and four small networks, each with a loss of its own: the residuals
# have the shape (4, 400, 1), and ``alpha`` has the shape (4, 1, 1).

torch.manual_seed(0)
torch.set_num_threads(1)  # the arrays are small
t = torch.rand(400, 1) * 6 - 3
y = torch.sin(2 * t) + 0.1 * torch.randn_like(t)
y = torch.where(torch.rand_like(t) < 0.3, 1 + 2 * torch.rand_like(t), y)
alpha = torch.tensor([2.0, 1.0, 0.0, -2.0]).reshape(4, 1, 1)
start = 3 * torch.randn(1, 64), 6 * torch.rand(1, 64) - 3, torch.zeros(64, 1)
weights = [w.repeat(4, 1, 1).requires_grad_() for w in start]


def networks(t):
    return torch.tanh(t @ weights[0] + weights[1]) @ weights[2]


optimiser = torch.optim.Adam(weights, 0.02)
for _ in range(300):
    optimiser.zero_grad()
    general_loss(networks(t) - y, alpha, 0.2).mean().backward()
    optimiser.step()

grid = torch.linspace(-3, 3, 301)[:, None]
fits = networks(grid).detach()[..., 0]
errors = (fits - torch.sin(2 * grid[:, 0])).abs().mean(dim=1)
assert errors[0] > 0.5 and torch.all(errors[1:] < torch.tensor([0.25, 0.15, 0.15]))

# %%
# The smaller the number, the less an outlier pulls.

colours = "#999999", "#E69F00", "#009E73", "#0072B2", "#CC79A7"
names = [rf"$\alpha = {number}$" for number in ("2", "1", "0", "-2", r"-\infty")]
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for slope, name, colour in zip(slopes, names, colours, strict=True):
    left.plot(x.detach(), slope, color=colour, linewidth=2, label=name)
left.set(xlabel="residual / c", ylabel="slope of the loss", title="The pull of a residual", ylim=(-3, 3))
left.legend(frameon=False, loc="upper left")
right.plot(t, y, ".", color="#BBBBBB", markersize=3)
for fit, name, colour in zip(fits, names[:4], colours[:4], strict=True):
    right.plot(grid, fit, color=colour, linewidth=2, label=name)
right.set(xlabel="t", ylabel="y", title="Networks trained with each loss")
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
