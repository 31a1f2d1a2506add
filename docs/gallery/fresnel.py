r"""
Light at a glass surface and the Goos-Hänchen shift
===================================================

How much light a surface reflects follows from A. Fresnel's formulas (1823). Inside glass there is an angle beyond
which all light is reflected, and then the square root in the formulas is that of a negative number. What remains is a
phase, and its derivative in the angle tells by how much a beam is displaced (F. Goos and H. Hänchen, Ann. Phys. 436,
1947). dualbcast differentiates both branches without complex numbers.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast

# %%
# The refractive index of the glass N-BK7 as a function of the wavelength in µm, with the coefficients of its maker
# Schott. The scalar function returns the reflected share and the phase for light polarised perpendicular (s) and
# parallel (p) to the plane of incidence.


def refractive_index(wavelength):
    w = wavelength * wavelength
    terms = ((1.03961212, 0.00600069867), (0.231792344, 0.0200179144), (1.01046945, 103.560653))
    return math.sqrt(1 + sum(strength * w / (w - place) for strength, place in terms))


@differentiable_broadcast
def reflection(angle, wavelength):
    n = 1 / refractive_index(wavelength)  # of the air, as seen from inside the glass
    cosine, beyond = math.cos(angle), math.sin(angle) ** 2 - n * n
    if beyond > 0:
        decay = math.sqrt(beyond)
        return 1.0, 1.0, -2 * math.atan(decay / cosine), -2 * math.atan(decay / (n * n * cosine))
    refracted = math.sqrt(-beyond)
    s = (cosine - refracted) / (cosine + refracted)
    p = (n * n * cosine - refracted) / (n * n * cosine + refracted)
    return s * s, p * p, 0.0 if s > 0 else math.pi, 0.0 if p > 0 else math.pi


wavelength = 0.6328  # of a helium-neon laser, in µm
angle = np.radians(np.linspace(0, 89.9, 2001))
(share_s, share_p, phase_s, phase_p), J = reflection.value_and_jacobian(angle, wavelength)

# %%
# Fresnel's formulas with NumPy's complex numbers give the same shares and phases. The displacement of a beam is
# :math:`-(\lambda / 2\pi)\, \mathrm{d}\varphi / \mathrm{d}\theta` with the wavelength in the glass, and has a closed
# form (K. Artmann, Ann. Phys. 437, 1948).

assert np.isclose(refractive_index(0.58756), 1.5168, atol=5e-6)  # as the data sheet says
inside = refractive_index(wavelength)
n = 1 / inside
root = np.sqrt(n * n - np.sin(angle) ** 2 + 0j)
complex_s = (np.cos(angle) - root) / (np.cos(angle) + root)
complex_p = (n * n * np.cos(angle) - root) / (n * n * np.cos(angle) + root)
for share, phase, amplitude in ((share_s, phase_s, complex_s), (share_p, phase_p, complex_p)):
    assert np.allclose(share, np.abs(amplitude) ** 2, atol=1e-14)
    assert np.allclose(np.sqrt(share) * np.exp(1j * phase), amplitude, atol=1e-12)
shift_s, shift_p = (-wavelength / inside / (2 * np.pi) * J[output, "angle"] for output in (2, 3))
total = np.sin(angle) > n
sine = np.sin(angle[total])
artmann = wavelength / inside / np.pi * sine / np.sqrt(sine**2 - n * n)
assert np.allclose(shift_s[total], artmann, rtol=1e-9)
assert np.allclose(shift_p[total], artmann * n * n / ((1 + n * n) * sine**2 - n * n), rtol=1e-9)
assert not shift_s[~total].any() and not J[0, "angle"][total].any()

# %%
# Below the limit no beam is displaced. At the limit the shift grows without bound.

degrees, limit = np.degrees(angle), np.degrees(np.arcsin(n))
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
left.plot(degrees, share_s, color="#0072B2", linewidth=2, label="s")
left.plot(degrees, share_p, "--", color="#D55E00", linewidth=2, label="p")
left.set(xlabel="angle in the glass (°)", ylabel="reflected share", title="Reflection from N-BK7 to air", xlim=(0, 90))
right.plot(degrees[total], shift_s[total], color="#0072B2", linewidth=2, label="s")
right.plot(degrees[total], shift_p[total], "--", color="#D55E00", linewidth=2, label="p")
right.set(xlabel="angle in the glass (°)", ylabel="displacement (µm)", title="Goos-Hänchen shift", xlim=(38, 90))
right.set(yscale="log", ylim=(0.05, 10), yticks=[0.1, 1, 10], yticklabels=["0.1", "1", "10"])
for axis in (left, right):
    axis.axvline(limit, color="#999999", linestyle=":", label=f"limit, {limit:.1f}°")
    axis.legend(frameon=False, title="polarisation", loc="center" if axis is right else "center left")
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
