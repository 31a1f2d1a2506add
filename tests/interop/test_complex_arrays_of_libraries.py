"""Complex tensors of PyTorch, and complex arrays of JAX and Dask, in scalar functions and in those of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

RANDOM = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)


Z, A = drawn(5), RANDOM.standard_normal(5)
M, V = drawn(3, 2, 2), drawn(3, 2)


@differentiable_broadcast
def turned(z, a):
    return z**2 * np.exp(1j * a) + z.conjugate()


@differentiable_broadcast
def power(z):
    return abs(z) ** 2


@differentiable_broadcast(signature="(2,2),(2)->(2),()")
def gate(m, v):
    w = m @ v * np.exp(1j * v[0])
    return w, np.linalg.norm(w)


def in_numpy(m: Any, v: Any) -> tuple[Any, Any]:
    w = (m @ v[..., None])[..., 0] * np.exp(1j * v[..., :1])
    return w, np.linalg.norm(w, axis=-1)


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    z, a, m, v = (torch.tensor(each, requires_grad=True) for each in (Z, A, M, V))
    for _turn in range(2):
        found = turned(z, a)
        torch.testing.assert_close(found, z**2 * torch.exp(1j * a) + z.conj())
        w, size = gate(m, v)
        np.testing.assert_allclose(w.detach(), in_numpy(M, V)[0])
        np.testing.assert_allclose(size.detach(), in_numpy(M, V)[1])
    assert torch.autograd.gradcheck(turned, (z, a))
    assert torch.autograd.gradgradcheck(turned, (z, a))
    assert torch.autograd.gradcheck(gate, (m, v))
    assert torch.autograd.gradgradcheck(gate, (m, v))
    assert turned(z.detach().to(torch.complex64), a.detach().float()).dtype is torch.complex64
    # A tensor may stand for the conjugate of what is in memory.
    torch.testing.assert_close(power(z.conj()), power(z))
    torch.testing.assert_close(turned(z.conj(), a), turned(z.conj().resolve_conj(), a))
    torch.testing.assert_close(torch.func.vmap(gate)(m.detach(), v.detach()), gate(m.detach(), v.detach()))
    _, pushed = torch.func.jvp(power, (z.detach(),), (z.detach(),))
    torch.testing.assert_close(pushed, 2 * power(z.detach()))


def test_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    with jax.enable_x64(True):
        m, v = jnp.asarray(M), jnp.asarray(V)

        def ours(m: Any, v: Any) -> Any:
            w, size = gate(m, v)
            return jnp.sum(w.real * w.imag) + jnp.sum(size)

        def theirs(m: Any, v: Any) -> Any:
            w = (m @ v[..., None])[..., 0] * jnp.exp(1j * v[..., :1])
            return jnp.sum(w.real * w.imag) + jnp.sum(jnp.sqrt(jnp.sum(w.real**2 + w.imag**2, axis=-1)))

        wanted = jax.grad(theirs, (0, 1))(m, v)
        for slopes in (jax.grad(ours, (0, 1)), jax.jit(jax.grad(ours, (0, 1)))):
            for found, expected in zip(slopes(m, v), wanted, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_chunks_of_dask() -> None:
    dask = pytest.importorskip("dask.array")
    z = dask.from_array(Z, chunks=2)
    np.testing.assert_allclose(turned(z, A[0]).compute(), Z**2 * np.exp(1j * A[0]) + Z.conj())
    assert turned(z, A[0]).dtype == np.complex128
    _, pullback = power.vjp(z)
    np.testing.assert_allclose(pullback(np.ones(5))[0].compute(), 2 * Z)
    m, v = dask.from_array(M, chunks=(2, 2, 2)), dask.from_array(V, chunks=(2, 2))
    (w, size), jacobian = gate.value_and_jacobian(m, v)
    np.testing.assert_allclose(w.compute(), in_numpy(M, V)[0])
    np.testing.assert_allclose(size.compute(), in_numpy(M, V)[1])
    np.testing.assert_allclose(jacobian["m.imag"][0].compute(), gate.jacobian(M, V)["m.imag"][0])
