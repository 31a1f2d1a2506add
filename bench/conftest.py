"""What the benchmarks share: the device they run on, its name in the saved results, and JAX where it is installed."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pytest

from dualbcast.cli import machine
from dualbcast.cli.measure import Device, choose_device


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Write down what the figures were measured on."""
    machine_info["processor"] = machine.cpu_model()
    machine_info["threads"] = machine.threads()
    machine_info["gpus"] = [gpu.as_dict() for gpu in machine.gpus()]
    machine_info["versions"] = machine.versions()
    if find_spec("jax"):
        machine_info["versions"]["jax"] = version("jax")


@pytest.fixture(scope="session")
def device() -> Device:
    """The GPU where there is one, else the processor."""
    return choose_device("auto")


@pytest.fixture(scope="session")
def finish(device: Device) -> Any:
    """Wait for what was queued on the device; nothing to wait for on the processor."""
    return device.xp.cuda.Device().synchronize if device.backend == "cuda" else lambda: None


@pytest.fixture(scope="session")
def jax() -> Any:
    """JAX, or a skip that says so."""
    return pytest.importorskip("jax", reason="JAX is not installed")
