"""Warp on the processor: a kernel with real branches, and a tape for the way back through it.

Warp runs processor kernels on one thread. It differentiates once, and its reverse mode does not go through loops that
depend on data: the second derivative (gamma) and the derivative of the root are written by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import constants
import numpy as np
import warp as wp

CANNOT: dict[str, str] = {}
Forms = dict[str, Callable[[], Callable[[], Any]]]
BULK, SHEAR = wp.constant(wp.float64(constants.BULK)), wp.constant(wp.float64(constants.SHEAR))
YIELD, HARDENING = wp.constant(wp.float64(constants.YIELD)), wp.constant(wp.float64(constants.HARDENING))
TOLERANCE = wp.constant(wp.float64(constants.TOLERANCE))
STEPS, STEP = wp.constant(constants.STEPS), wp.constant(wp.float64(constants.STEP))
ROOT_TWO, ROOT_TWO_PI = wp.constant(wp.float64(2**0.5)), wp.constant(wp.float64((2 * np.pi) ** 0.5))
vector6 = wp.types.vector(length=6, dtype=wp.float64)

wp.config.quiet = True
wp.config.max_unroll = 64  # a loop that is not written out has wrong gradients
wp.config.log_level = getattr(wp, "LOG_WARNING", 30)
wp.init()


def array(host: Any) -> Any:
    return wp.array(host, dtype=wp.float32 if host.dtype == np.float32 else wp.float64, device="cpu")


def host(result: Any) -> Any:
    return result.numpy()


def _taped(kernel: Any, arrays: list[Any], active: list[Any], bar: Any = None, shape: Any = None) -> Forms:
    """The value and the gradients of the `active` arrays; the value's cotangent is ones if none is given."""
    first = active[0]
    for x in active:
        x.requires_grad = True
    bar = bar or wp.ones(first.shape, dtype=first.dtype, device="cpu")

    def call() -> Any:
        for x in active:
            x.grad = wp.zeros_like(x, requires_grad=False)
        value = wp.empty(first.shape, dtype=first.dtype, device="cpu", requires_grad=True)
        tape = wp.Tape()
        with tape:
            wp.launch(kernel, dim=shape or first.shape, inputs=arrays, outputs=[value], device="cpu")
        tape.backward(grads={value: bar})
        return value, [x.grad for x in active]

    return {"tape": lambda: call}


@wp.func
def sigmoid(x: wp.float32) -> wp.float32:
    return 1.0 / (1.0 + wp.exp(-x))


@wp.kernel
def cell(
    c: wp.array2d(dtype=wp.float32),
    f: wp.array2d(dtype=wp.float32),
    i: wp.array2d(dtype=wp.float32),
    g: wp.array2d(dtype=wp.float32),
    z: wp.array2d(dtype=wp.float32),
    zb: wp.array2d(dtype=wp.float32),
    out: wp.array2d(dtype=wp.float32),
):
    row, column = wp.tid()
    control = wp.min(column, z.shape[1] - 1)  # one a row, or one an element
    if z[row, control] == 1.0:
        out[row, column] = sigmoid(i[row, column]) * wp.tanh(g[row, column])
    elif zb[row, control] == 0.0:
        out[row, column] = c[row, column]
    else:
        out[row, column] = sigmoid(f[row, column]) * c[row, column] + sigmoid(i[row, column]) * wp.tanh(g[row, column])


def cell_value(arrays: list[Any]) -> Forms:
    def call() -> Any:
        value = wp.empty(arrays[0].shape, dtype=wp.float32, device="cpu")
        wp.launch(cell, dim=value.shape, inputs=arrays, outputs=[value], device="cpu")
        return value

    return {"launch": lambda: call}


def cell_jacobian(arrays: list[Any]) -> Forms:
    return _taped(cell, arrays, arrays[:4])


def cell_pullback(arrays: list[Any]) -> Forms:
    return _taped(cell, arrays[:6], arrays[:4], arrays[6])


def product(arrays: list[Any]) -> Forms:
    arity = len(arrays)

    @wp.kernel(module="unique")
    def kernel(xs: wp.array3d(dtype=wp.float32), out: wp.array2d(dtype=wp.float32)):
        row, column = wp.tid()
        y = wp.float32(1.0)
        for k in range(wp.static(arity)):
            x = xs[k, row, column]
            if x > 0.5:  # noqa: SIM108
                y = y * wp.tanh(x)
            else:
                y = y * wp.tanh(-x)
        out[row, column] = y

    stacked = array(np.stack([x.numpy() for x in arrays]))
    stacked.requires_grad = True
    shape = arrays[0].shape
    bar = wp.ones(shape, dtype=wp.float32, device="cpu")

    def call() -> Any:
        stacked.grad = wp.zeros_like(stacked, requires_grad=False)
        value = wp.empty(shape, dtype=wp.float32, device="cpu", requires_grad=True)
        tape = wp.Tape()
        with tape:
            wp.launch(kernel, dim=shape, inputs=[stacked], outputs=[value], device="cpu")
        tape.backward(grads={value: bar})
        return value, [stacked.grad[k] for k in range(arity)]

    return {"tape": lambda: call}


@wp.func
def normal(x: wp.float64) -> wp.float64:
    return wp.erfc(-x / ROOT_TWO) / wp.float64(2.0)


@wp.kernel
def call_price(
    spot: wp.array(dtype=wp.float64),
    strike: wp.array(dtype=wp.float64),
    rate: wp.array(dtype=wp.float64),
    volatility: wp.array(dtype=wp.float64),
    time: wp.array(dtype=wp.float64),
    out: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    spread = volatility[k] * wp.sqrt(time[k])
    d = (wp.log(spot[k] / strike[k]) + rate[k] * time[k]) / spread + spread / wp.float64(2.0)
    out[k] = spot[k] * normal(d) - strike[k] * wp.exp(-rate[k] * time[k]) * normal(d - spread)


@wp.kernel(enable_backward=False)
def gamma_by_hand(
    spot: wp.array(dtype=wp.float64),
    strike: wp.array(dtype=wp.float64),
    rate: wp.array(dtype=wp.float64),
    volatility: wp.array(dtype=wp.float64),
    time: wp.array(dtype=wp.float64),
    decay: wp.array(dtype=wp.float64),
    gamma: wp.array(dtype=wp.float64),
    theta: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    spread = volatility[k] * wp.sqrt(time[k])
    d = (wp.log(spot[k] / strike[k]) + rate[k] * time[k]) / spread + spread / wp.float64(2.0)
    gamma[k] = wp.exp(-d * d / wp.float64(2.0)) / (ROOT_TWO_PI * spot[k] * spread)
    theta[k] = -decay[k]


def price(arrays: list[Any]) -> Forms:
    return _taped(call_price, arrays, arrays)


def greeks(arrays: list[Any]) -> Forms:
    pull = _taped(call_price, arrays, [arrays[0], *arrays[2:]])["tape"]()

    def call() -> Any:
        value, (delta, rho, vega, decay) = pull()
        gamma, theta = wp.empty_like(delta), wp.empty_like(delta)
        inputs = [*arrays, decay]
        wp.launch(gamma_by_hand, dim=delta.shape, inputs=inputs, outputs=[gamma, theta], device="cpu")
        return value, delta, gamma, vega, theta, rho

    return {"tape, gamma by hand": lambda: call}


@wp.kernel
def oscillate(
    place: wp.array(dtype=wp.float64),
    speed: wp.array(dtype=wp.float64),
    damping: wp.array(dtype=wp.float64),
    out: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    x, v = wp.float64(place[k]), wp.float64(speed[k])
    for _ in range(STEPS):
        v = v + STEP * (damping[k] * (wp.float64(1.0) - x * x) * v - x)
        x = x + STEP * v
    out[k] = x


def oscillator(arrays: list[Any]) -> Forms:
    return _taped(oscillate, arrays, arrays)


@wp.kernel(enable_backward=False)
def anomaly(
    mean: wp.array(dtype=wp.float64),
    eccentricity: wp.array(dtype=wp.float64),
    out: wp.array(dtype=wp.float64),
    along_mean: wp.array(dtype=wp.float64),
    along_eccentricity: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    m, e = mean[k], eccentricity[k]
    x = m + e * wp.sin(m)
    step = wp.float64(1.0)
    while wp.abs(step) > TOLERANCE:
        step = (x - e * wp.sin(x) - m) / (wp.float64(1.0) - e * wp.cos(x))
        x = x - step
    slope = wp.float64(1.0) / (wp.float64(1.0) - e * wp.cos(x))
    out[k] = x
    along_mean[k] = slope
    along_eccentricity[k] = wp.sin(x) * slope


def kepler(arrays: list[Any]) -> Forms:
    def call() -> Any:
        outputs = [wp.empty_like(arrays[0]) for _ in range(3)]
        wp.launch(anomaly, dim=arrays[0].shape, inputs=arrays, outputs=outputs, device="cpu")
        return outputs

    return {"implicit, by hand": lambda: call}


@wp.kernel
def stress(
    strain: wp.array(dtype=vector6),
    hardened: wp.array(dtype=wp.float64),
    s0: wp.array(dtype=wp.float64),
    s1: wp.array(dtype=wp.float64),
    s2: wp.array(dtype=wp.float64),
    s3: wp.array(dtype=wp.float64),
    s4: wp.array(dtype=wp.float64),
    s5: wp.array(dtype=wp.float64),
):
    k = wp.tid()
    e = strain[k]
    volume = e[0] + e[1] + e[2]
    pressure = BULK * volume
    third = volume / wp.float64(3.0)
    two = wp.float64(2.0)
    xx, yy, zz = two * SHEAR * (e[0] - third), two * SHEAR * (e[1] - third), two * SHEAR * (e[2] - third)
    xy, xz, yz = two * SHEAR * e[3], two * SHEAR * e[4], two * SHEAR * e[5]
    mises = wp.sqrt(wp.float64(1.5) * (xx * xx + yy * yy + zz * zz + two * (xy * xy + xz * xz + yz * yz)))
    excess = mises - (YIELD + HARDENING * hardened[k])
    kept = wp.float64(1.0)
    if excess > wp.float64(0.0):
        kept = wp.float64(1.0) - wp.float64(3.0) * SHEAR * excess / ((wp.float64(3.0) * SHEAR + HARDENING) * mises)
    s0[k] = kept * xx + pressure
    s1[k] = kept * yy + pressure
    s2[k] = kept * zz + pressure
    s3[k] = kept * xy
    s4[k] = kept * xz
    s5[k] = kept * yz


def plasticity(arrays: list[Any]) -> Forms:
    strain = wp.array(
        np.stack([x.numpy() for x in arrays[:6]], axis=1), dtype=vector6, device="cpu", requires_grad=True
    )
    n = len(strain)

    def call() -> Any:
        values = [wp.empty(n, dtype=wp.float64, device="cpu", requires_grad=True) for _ in range(6)]
        tape = wp.Tape()
        with tape:
            wp.launch(stress, dim=n, inputs=[strain, arrays[6]], outputs=values, device="cpu")
        rows = []
        for value in values:
            strain.grad = wp.zeros_like(strain, requires_grad=False)
            value.grad.fill_(1.0)
            tape.backward()
            value.grad.zero_()
            rows.append(strain.grad)
        return values, rows

    return {"six times back": lambda: call}


@wp.kernel
def tanh_layer(
    x: wp.array2d(dtype=wp.float32),
    w: wp.array(dtype=wp.float32),
    b: wp.array2d(dtype=wp.float32),
    out: wp.array2d(dtype=wp.float32),
):
    row, column = wp.tid()
    out[row, column] = wp.tanh(x[row, column] * w[column] + b[row, 0])


def layer(arrays: list[Any]) -> Forms:
    return _taped(tanh_layer, arrays[:3], arrays[:3], arrays[3])
