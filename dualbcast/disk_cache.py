"""The cache on disk: checksummed entries, written whole or not at all, and the text of kernels for people to read."""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_ENTRIES = "kernels"
_TEXTS = "source"
# An entry is the magic, the SHA-256 of its key and payload, and the payload. A new format gets a new magic.
_MAGIC = b"dualbcast kernel 1\n"
_DIGEST_SIZE = 32  # of SHA-256; hashlib itself takes milliseconds to import


class CacheInfo(NamedTuple):
    """What the cache holds."""

    directory: Path  # it may not exist yet
    entries: int  # compiled kernels and other results of the compiler
    bytes: int  # of everything that the cache has written: the entries, and the text of kernels for people to read


def directory() -> Path:
    """The directory of the cache: `DUALBCAST_CACHE_DIR`, or the user's cache directory of this platform."""
    if chosen := os.environ.get("DUALBCAST_CACHE_DIR"):
        return Path(os.path.expanduser(chosen))
    import platformdirs  # takes milliseconds

    return platformdirs.user_cache_path("dualbcast", appauthor=False)


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

    Where the file cannot be written the path does not exist; `linecache`, which tracebacks read, still has the text.
    """
    path = str(directory() / _TEXTS / name)
    content = text.encode()
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read() == content:
            return path
    if not _write(path, content):
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    return path


def info() -> CacheInfo:
    """Count the entries of the cache and their bytes."""
    entries = size = 0
    for path in _files():
        with contextlib.suppress(OSError):
            size += os.stat(path).st_size
            entries += path.endswith(".bin")
    return CacheInfo(directory(), entries, size)


def clear() -> None:
    """Delete all files that the cache has written; kernels already loaded stay usable."""
    for path in _files():
        with contextlib.suppress(OSError):
            os.unlink(path)


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
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid not in (os.getuid(), 0):
                return None
            data = file.read()
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_SIZE
    payload = data[head:]
    return payload if data[:head] == _MAGIC + _checksum(key, payload) else None


def _write(path: str, data: bytes) -> bool:
    """Write a file of the cache, for its user alone; False where it cannot be done."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True, mode=0o700)
        write_whole(path, data, mode=0o600)
    except OSError:
        return False
    return True


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
