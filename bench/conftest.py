"""Two cores for all systems, and a description of the machine in the saved results."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import systems

from dualbcast.cli import measure
from dualbcast.runtime.cpu.policy import get_num_threads

systems.settle()


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """Add the machine and the versions that the figures were measured on."""
    machine_info["processor"] = measure.cpu_model()
    machine_info["threads"] = get_num_threads()
    machine_info["cache"] = measure.last_level_cache()
    machine_info["versions"] = measure.versions()
    for package in systems.PACKAGES:
        try:
            machine_info["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        import drjit

        machine_info["versions"]["LLVM of Dr.Jit"] = ".".join(map(str, drjit.detail.llvm_version()))
    except (ImportError, AttributeError):
        pass
