"""The cache on disk: checksummed entries, written whole or not at all, and the text of kernels for people to read.

It stays below a limit: what has not been used for the longest time is deleted first.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_ENTRIES = "kernels"
_TEXTS = "source"
# An entry is the magic, the SHA-256 of its key and payload, and the payload. A new format gets a new magic.
_MAGIC = b"dualbcast kernel 1\n"
_DIGEST_SIZE = 32  # of SHA-256; hashlib itself takes milliseconds to import
# Grows by a byte for each block that any process has written since the last sweep; its size tells when to sweep again.
_WRITTEN = "written"
_BLOCK = 4096
# A sweep leaves an eighth of the limit free, and the next one comes when that much was written.
_SHARE = 8
# Reading sets the time of an entry no more often: so a process that reads many entries writes nothing.
_TIME_STEP = 86400.0
DEFAULT_LIMIT = 1 << 30


class CacheInfo(NamedTuple):
    """What the cache holds."""

    directory: Path  # it may not exist yet
    entries: int  # compiled kernels and other results of the compiler
    bytes: int  # of everything that the cache has written: the entries, and the text of kernels for people to read
    limit: int | None  # of these bytes, or None


class Pruned(NamedTuple):
    """What a sweep has deleted, and what it has left."""

    deleted: int  # files
    deleted_bytes: int
    left: int
    left_bytes: int


def directory() -> Path:
    """The directory of the cache: `DUALBCAST_CACHE_DIR`, or the user's cache directory of this platform."""
    if chosen := os.environ.get("DUALBCAST_CACHE_DIR"):
        return Path(os.path.expanduser(chosen))
    import platformdirs  # takes milliseconds

    return platformdirs.user_cache_path("dualbcast", appauthor=False)


def limit() -> int | None:
    """The bytes that the cache may hold: `DUALBCAST_CACHE_LIMIT`, or 1 GiB; None if there is no limit."""
    given = os.environ.get("DUALBCAST_CACHE_LIMIT", "").strip()
    if not given:
        return DEFAULT_LIMIT
    try:
        return parsed_limit(given)
    except ValueError as error:  # the cache is never the reason for an error
        warnings.warn(f"DUALBCAST_CACHE_LIMIT is ignored: {error}", RuntimeWarning, stacklevel=2)
        return DEFAULT_LIMIT


def parsed_limit(text: str) -> int | None:
    """The bytes that a text names, such as 500M or 2GiB, in units of 1024; None for "unlimited".

    Examples
    --------
    >>> parsed_limit("500M"), parsed_limit("1.5 GiB"), parsed_limit("unlimited")
    (524288000, 1610612736, None)
    """
    if text.strip().lower() == "unlimited":
        return None
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d*)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if found is None:
        raise ValueError(f"{text!r} is no size; write a number of bytes, 500M or 2G for example, or unlimited")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))


def key(*parts: str) -> str:
    """The SHA-256 of `parts` in hexadecimal; the boundaries between the parts count.

    Examples
    --------
    >>> key("ab", "c") == key("ab", "c")
    True
    >>> key("ab", "c") == key("a", "bc")
    False
    """
    import hashlib

    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()


def stamp(package: str | os.PathLike[str]) -> str:
    """Sizes and times of the files of a package, and Python's version, which tell one compiler from another.

    Python decides by the same whether to compile a file anew. The text of `__init__.py` is read too: it has the
    version, and some archives give all files one time.
    """
    parts = [sys.version]
    for folder, folders, names in os.walk(package):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                parts.append(f"{os.path.relpath(folder, package)} {name} {status.st_size} {status.st_mtime_ns}")
    with open(os.path.join(package, "__init__.py"), encoding="utf-8") as text:
        parts.append(text.read())
    return "\n".join(parts)


# Taken when the package is imported: no other process finds an entry that is made after a file was changed.
STAMP = stamp(os.path.dirname(__file__))


def fetch(key: str, make: Callable[[], bytes]) -> bytes:
    """The payload stored under `key`, or else the result of `make`, which is then stored.

    An entry that is damaged, that was stored under another key, or that another user wrote is made anew. Where nothing
    can be read or written the payload is made: the cache is never the reason for an error.

    The key is from `key()`, and must cover everything that the payload depends on. Exceptions of `make` pass through,
    and nothing is stored then.
    """
    path = str(directory() / _ENTRIES / f"{key}.bin")
    payload = _read(path, key)
    if payload is None:
        payload = make()
        _write(path, _MAGIC + _checksum(key, payload) + payload)
    return payload


def write_text(name: str, text: str) -> str:
    """Store the text of a kernel as a file called `name`, and return its path, for tracebacks and debuggers to show.

    Where the file cannot be written, or is deleted later, `linecache`, which tracebacks read, still has the text.
    """
    path = str(directory() / _TEXTS / name)
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    content = text.encode()
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read() == content:
            _used(path, os.fstat(file.fileno()))
            return path
    _write(path, content)
    return path


def info() -> CacheInfo:
    """Count the entries of the cache and their bytes."""
    entries = size = 0
    for path in _files():
        with contextlib.suppress(OSError):
            size += os.stat(path).st_size
            entries += path.endswith(".bin")
    return CacheInfo(directory(), entries, size, limit())


def clear() -> None:
    """Delete all files that the cache has written; kernels already loaded stay usable."""
    for path in [*_files(), str(directory() / _WRITTEN)]:
        with contextlib.suppress(OSError):
            os.unlink(path)


def prune(size: int) -> Pruned:
    """Delete the files that have not been used for the longest time, until no more than `size` bytes are left.

    Processes that have loaded a kernel can still use it. Several processes may prune, read and write at once: an entry
    that is gone is made again by the next process that needs it.
    """
    found = []
    for path in _files():
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found.append((status.st_mtime_ns, path, status.st_size))
    left, excess = len(found), sum(size for _, _, size in found) - size
    total = excess + size
    for _, path, length in sorted(found):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                os.unlink(path)
            left -= 1
            excess -= length
    return Pruned(len(found) - left, total - size - excess, left, size + excess)


def _sweep_if_due(written: int) -> None:
    """Note that a file was written, and prune the cache if all processes together have written their share since."""
    most = limit()
    if most is None:
        return
    path = str(directory() / _WRITTEN)
    with open(path, "ab") as file:
        is_new = file.tell() == 0  # nobody has swept yet
        file.write(b"." * (1 + written // _BLOCK))
        size = file.tell()
    if is_new or size * _BLOCK > most // _SHARE:
        write_whole(path, b".", mode=0o600)
        prune(most - most // _SHARE)


def _files() -> Iterator[str]:
    # Only our own folders: DUALBCAST_CACHE_DIR may name a directory that holds other things too.
    for folder in (_ENTRIES, _TEXTS):
        with contextlib.suppress(OSError), os.scandir(directory() / folder) as items:
            yield from [item.path for item in items if item.is_file(follow_symlinks=False)]


def _checksum(key: str, payload: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(key.encode() + payload).digest()


def _read(path: str, key: str) -> bytes | None:
    """The payload of an entry, or None unless it is whole, is this key's, and this user's (or root's)."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if hasattr(os, "getuid") and status.st_uid not in (os.getuid(), 0):
                return None
            data = file.read()
            _used(path, status)
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_SIZE
    payload = data[head:]
    return payload if data[:head] == _MAGIC + _checksum(key, payload) else None


def _used(path: str, status: os.stat_result) -> None:
    """Let the time of a file say that it was used today. Many systems do not keep the time of the last reading."""
    if time.time() - status.st_mtime > _TIME_STEP:
        with contextlib.suppress(OSError):
            os.utime(path)


def _write(path: str, data: bytes) -> None:
    """Write a file of the cache, for its user alone, where that can be done."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True, mode=0o700)
        write_whole(path, data, mode=0o600)
        _sweep_if_due(len(data))


def write_whole(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write a file of this mode, less the umask, under a temporary name and rename it: no reader ever sees a part."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb", opener=lambda file, flags: os.open(file, flags, mode)) as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
