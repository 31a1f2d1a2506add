"""The cache on disk: entries are whole, this key's and this user's, or they are made anew."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from dualbcast import disk_cache


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    """Makes a payload and counts how often."""

    def __init__(self, payload: bytes = b"\x00machine code\xff" * 100) -> None:
        self.payload, self.calls = payload, 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.payload


def entry_of(key: str) -> Path:
    (path,) = [path for path in disk_cache.directory().rglob("*") if path.is_file() and key in path.name]
    return path


def test_a_second_fetch_reads_what_the_first_made():
    key, make = disk_cache.key("a"), Maker()
    assert disk_cache.fetch(key, make) == make.payload
    assert disk_cache.fetch(key, make) == make.payload
    assert make.calls == 1


def test_an_empty_payload_is_an_entry():
    key, make = disk_cache.key("a"), Maker(b"")
    assert disk_cache.fetch(key, make) == disk_cache.fetch(key, make) == b""
    assert make.calls == 1


def test_keys_differ_where_parts_differ():
    keys = [
        disk_cache.key(),
        disk_cache.key(""),
        disk_cache.key("ab"),
        disk_cache.key("a", "b"),
        disk_cache.key("b", "a"),
        disk_cache.key("1:a"),
    ]
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 and set(key) <= set("0123456789abcdef") for key in keys)


@pytest.mark.parametrize("keep", [0, 5, 19, 30, 51, 60, -1], ids=lambda size: f"keep{size}")
def test_a_truncated_entry_is_made_anew(keep):
    key, make = disk_cache.key("a"), Maker()
    disk_cache.fetch(key, make)
    path = entry_of(key)
    path.write_bytes(path.read_bytes()[:keep])
    assert disk_cache.fetch(key, make) == make.payload
    assert disk_cache.fetch(key, make) == make.payload
    assert make.calls == 2


def test_any_changed_byte_is_noticed():
    key, make = disk_cache.key("a"), Maker(b"0123456789")
    disk_cache.fetch(key, make)
    path = entry_of(key)
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 4]) + good[position + 1 :])
        assert disk_cache.fetch(key, make) == make.payload
        assert make.calls == position + 2
        assert path.read_bytes() == good


def test_bytes_added_are_noticed():
    key, make = disk_cache.key("a"), Maker()
    disk_cache.fetch(key, make)
    with entry_of(key).open("ab") as file:
        file.write(b"x")
    assert disk_cache.fetch(key, make) == make.payload
    assert make.calls == 2


def test_an_entry_of_another_key_is_not_trusted():
    first, second = disk_cache.key("a"), disk_cache.key("b")
    disk_cache.fetch(first, Maker(b"first"))
    path = entry_of(first)
    path.rename(path.with_name(path.name.replace(first, second)))
    assert disk_cache.fetch(second, Maker(b"second")) == b"second"


@pytest.mark.parametrize(("owner", "trusted"), [(1000, True), (0, True), (1001, False)])
def test_only_this_users_and_roots_entries_are_trusted(monkeypatch, owner, trusted):
    key, make = disk_cache.key("a"), Maker()
    disk_cache.fetch(key, make)
    monkeypatch.setattr(os, "getuid", lambda: 1000, raising=False)
    fstat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result((*fstat(file)[:4], owner, *fstat(file)[5:])))
    assert disk_cache.fetch(key, make) == make.payload
    assert make.calls == (1 if trusted else 2)


def test_an_error_in_making_passes_through_and_nothing_is_stored():
    key = disk_cache.key("a")

    def fail() -> bytes:
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        disk_cache.fetch(key, fail)
    assert disk_cache.info().entries == 0
    assert disk_cache.fetch(key, Maker(b"x")) == b"x"


def test_no_temporary_file_stays(folder):
    disk_cache.fetch(disk_cache.key("a"), Maker())
    disk_cache.write_text("kernel.py", "x = 1\n")
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        f"{disk_cache.key('a')}.bin",
        "kernel.py",
    ]


def test_where_nothing_can_be_written_the_payload_is_made_each_time(tmp_path, monkeypatch):
    # A file where the directory should be: refused to every user, root too.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "file" / "cache"))
    key, make = disk_cache.key("a"), Maker()
    assert disk_cache.fetch(key, make) == make.payload
    assert disk_cache.fetch(key, make) == make.payload
    assert make.calls == 2
    assert disk_cache.info().entries == disk_cache.info().bytes == 0
    disk_cache.clear()


def traceback_of(path: Path, text: str) -> str:
    namespace: dict[str, object] = {}
    exec(compile(text, str(path), "exec"), namespace)
    try:
        namespace["kernel"]()  # type: ignore[operator]
    except ZeroDivisionError:
        return traceback.format_exc()
    raise AssertionError("the kernel did not fail")


TEXT = "def kernel():\n    return 1 / 0  # the é line\n"


def test_tracebacks_show_the_text():
    path = Path(disk_cache.write_text("kernel.py", TEXT))
    assert path.read_text(encoding="utf-8") == TEXT
    shown = traceback_of(path, TEXT)
    assert "return 1 / 0  # the é line" in shown
    assert str(path) in shown


def test_tracebacks_show_the_text_where_it_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "file"))
    path = Path(disk_cache.write_text("kernel.py", TEXT))
    assert not path.exists()
    assert "return 1 / 0  # the é line" in traceback_of(path, TEXT)


def test_changed_text_replaces_the_file():
    disk_cache.write_text("kernel.py", "old")
    assert Path(disk_cache.write_text("kernel.py", "new")).read_text() == "new"


def test_info_counts_and_clear_deletes_only_what_the_cache_wrote(folder):
    assert disk_cache.info() == disk_cache.CacheInfo(folder, 0, 0)
    disk_cache.clear()
    for part in "abc":
        disk_cache.fetch(disk_cache.key(part), Maker())
    disk_cache.write_text("kernel.py", "x = 1\n")
    other = folder / "notes.txt"
    other.write_text("not the cache's")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path != other]
    assert disk_cache.info() == disk_cache.CacheInfo(folder, 3, sum(sizes))
    disk_cache.clear()
    assert disk_cache.info() == disk_cache.CacheInfo(folder, 0, 0)
    assert other.read_text() == "not the cache's"


@pytest.mark.parametrize("caches", [None, "/tmp/somewhere", "/tmp/somewhere/", "not/absolute", "~/caches", "", " "])
def test_without_the_variable_the_directory_is_the_platforms(monkeypatch, caches):
    import platformdirs

    monkeypatch.delenv("DUALBCAST_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if caches is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", caches)
    assert disk_cache.directory() == Path(platformdirs.user_cache_dir("dualbcast", appauthor=False))
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", "~/elsewhere")
    assert disk_cache.directory() == Path.home() / "elsewhere"


RACE = """
import sys, time
from dualbcast import disk_cache as cache
turn = int(sys.argv[1])
start = float(sys.argv[2])
time.sleep(max(0, start - time.time()))
for repeat in range(200):
    payload = bytes([repeat]) * 50_000
    # Damage some entries while the other process reads and writes them.
    if repeat % 7 == turn:
        path = cache.directory() / "kernels" / (cache.key(str(repeat)) + ".bin")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"damaged")
    assert cache.fetch(cache.key(str(repeat)), lambda: payload) == payload
"""


def test_two_processes_may_race():
    start = str(time.time() + 0.7)
    racers = [subprocess.Popen([sys.executable, "-c", RACE, str(turn), start]) for turn in range(2)]
    assert [racer.wait(60) for racer in racers] == [0, 0]
    names = [path.name for path in (disk_cache.directory() / "kernels").iterdir()]
    assert all(name.endswith(".bin") and not name.startswith(".") for name in names)
    assert disk_cache.info().entries == 200
