r"""
The errors of a lens from two images of a star
==============================================

The image of a star is the squared magnitude of a Fourier transform: that of the light in the pupil of the telescope.
The phase of this light, and so the shape of the optics, is lost in it. A second image, out of focus by a known amount,
gives it back (R. A. Gonsalves, "Phase retrieval and diversity in adaptive optics", Optical Engineering 21, 1982). The
likelihood of both images is a function of the errors, and the graph differentiates it through the transforms.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

from dualbcast import graph

# %%
# The pupil is a disc, padded with zeros, and the errors are six of F. Zernike's polynomials: defocus, two of
# astigmatism, two of coma, and spherical aberration.

n = 64
y, x = (np.mgrid[:n, :n] - n // 2) / 16.5
r2 = x * x + y * y
pupil = (r2 <= 1.0) * 1.0
shapes = [2 * r2 - 1, x * x - y * y, 2 * x * y, (3 * r2 - 2) * x, (3 * r2 - 2) * y, 6 * r2 * r2 - 6 * r2 + 1]
zernike = np.array(shapes) * pupil


def image(errors, defocus):
    phase = np.tensordot(errors, zernike, 1) + defocus * zernike[0]
    light = np.fft.fft2(pupil * np.exp(1j * phase))
    return 1e6 * abs(light) ** 2 / (n * n * np.sum(pupil))


# %%
# A million photons in each image, and some of the background.

true, background, defocus = np.array([0.4, -0.3, 0.5, 0.35, -0.2, 0.25]), 2.0, (0.0, 2.0)
random = np.random.default_rng(6)
counts = [random.poisson(image(true, each) + background) for each in defocus]


def loss(errors):
    rates = [image(errors, each) + background for each in defocus]
    return sum(np.sum(rate - count * np.log(rate)) for rate, count in zip(rates, counts, strict=True))


step = 1e-5 * np.eye(6)
differences = [(loss(true / 2 + each) - loss(true / 2 - each)) / 2e-5 for each in step]
assert np.allclose(graph.grad(loss)(true / 2), differences, rtol=1e-6, atol=1e-3)

# %%
# The errors are found to a few thousandths of a radian, from nothing known.

value_and_gradient = graph.compile(graph.value_and_grad(loss))
found = minimize(value_and_gradient, np.zeros(6), jac=True, method="BFGS", options={"gtol": 1.0})
print("found", found.x.round(4), "in", found.nfev, "evaluations")
assert np.allclose(found.x, true, atol=0.005)

# %%
# Both images, and what they say about the phase.

fig, axes = plt.subplots(1, 3, figsize=(8, 3.1), layout="constrained")
middle = slice(n // 2 - 14, n // 2 + 14)
for axis, count, each in zip(axes, counts, defocus, strict=False):
    axis.imshow(np.sqrt(np.fft.fftshift(count)[middle, middle]), cmap="magma")
    axis.set(title=f"image with {each:.0f} rad of defocus", xlabel="pixels")
phase = np.where(pupil > 0, np.tensordot(found.x, zernike, 1), np.nan)
shown = axes[2].imshow(phase[15:50, 15:50], cmap="twilight")
axes[2].set(title="phase in the pupil", xlabel="pixels")
axes[0].set(ylabel="pixels")
fig.colorbar(shown, label="radians")
plt.show()
