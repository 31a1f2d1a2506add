"""How much memory this process may still take."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["available_memory"]

# The files of a control group, of version 2 and 1: its limit, its use, and the field of its use by cached files.
_GROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def available_memory() -> int | None:
    """How many bytes of memory a process may still take, as the system and the group that it is in allow; None if that
    cannot be told."""
    bounds = []
    with suppress(OSError, KeyError, ValueError):
        bounds.append(_fields(Path("/proc/meminfo"))["MemAvailable"] * 1024)
    for limit, used, cached in _GROUP_FILES:
        with suppress(OSError, KeyError, ValueError):  # a limit may be the word "max"
            # Cached files give way.
            taken = int(Path(used).read_text()) - _fields(Path(limit).parent / "memory.stat")[cached]
            bounds.append(max(0, int(Path(limit).read_text()) - max(0, taken)))
    return min(bounds, default=None)


def _fields(path: Path) -> dict[str, int]:
    """The numbers of a file of lines such as `name: 12 kB`, by their names."""
    lines = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
