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
        "written",
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


def test_tracebacks_show_a_text_that_was_deleted():
    path = Path(disk_cache.write_text("kernel.py", TEXT))
    disk_cache.clear()
    assert not path.exists()
    assert "return 1 / 0  # the é line" in traceback_of(path, TEXT)


def test_changed_text_replaces_the_file():
    disk_cache.write_text("kernel.py", "old")
    assert Path(disk_cache.write_text("kernel.py", "new")).read_text() == "new"


def test_info_counts_and_clear_deletes_only_what_the_cache_wrote(folder):
    assert disk_cache.info() == disk_cache.CacheInfo(folder, 0, 0, 1 << 30)
    disk_cache.clear()
    for part in "abc":
        disk_cache.fetch(disk_cache.key(part), Maker())
    disk_cache.write_text("kernel.py", "x = 1\n")
    other = folder / "notes.txt"
    other.write_text("not the cache's")
    sizes = [path.stat().st_size for path in folder.glob("*/*")]
    assert disk_cache.info() == disk_cache.CacheInfo(folder, 3, sum(sizes), 1 << 30)
    disk_cache.clear()
    assert disk_cache.info() == disk_cache.CacheInfo(folder, 0, 0, 1 << 30)
    assert [path for path in folder.rglob("*") if path.is_file()] == [other]
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


# --- the limit -------------------------------------------------------------------------------------------------------

DAY = 86400
ENTRY = 1000 + 51  # the magic and the checksum are before the payload


def stored(number: int, age: float = 0, size: int = 1000) -> Path:
    """An entry that was last used `age` days ago."""
    key = disk_cache.key(str(number))
    disk_cache.fetch(key, lambda: bytes(size))
    path = entry_of(key)
    then = time.time() - age * DAY
    os.utime(path, (then, then))
    return path


def test_what_was_not_used_for_longest_leaves_first():
    order = [3, 0, 4, 1, 2]
    paths = {age: stored(age, age + 1) for age in order}
    assert disk_cache.prune(5 * ENTRY) == disk_cache.Pruned(0, 0, 5, 5 * ENTRY)
    assert disk_cache.prune(3 * ENTRY) == disk_cache.Pruned(2, 2 * ENTRY, 3, 3 * ENTRY)
    assert [age for age in range(5) if paths[age].exists()] == [0, 1, 2]
    assert disk_cache.prune(3 * ENTRY - 1).deleted == 1
    assert disk_cache.prune(0) == disk_cache.Pruned(2, 2 * ENTRY, 0, 0)


def test_reading_an_entry_is_a_use():
    old, older = stored(0, age=20), stored(1, age=30)
    disk_cache.fetch(disk_cache.key("1"), Maker())
    disk_cache.prune(ENTRY)
    assert older.exists() and not old.exists()


def test_reading_again_on_the_same_day_writes_nothing(monkeypatch):
    stored(0, age=0.9)
    monkeypatch.setattr(os, "utime", lambda *_: pytest.fail("a time was set"))
    disk_cache.fetch(disk_cache.key("0"), Maker())


def test_a_text_is_used_when_it_is_asked_for():
    path = Path(disk_cache.write_text("kernel.py", TEXT))
    os.utime(path, (0, 0))
    disk_cache.write_text("kernel.py", TEXT)
    assert time.time() - path.stat().st_mtime < DAY
    os.utime(path, (0, 0))
    entry = stored(0)
    disk_cache.prune(ENTRY)
    assert entry.exists() and not path.exists()


@pytest.mark.parametrize("size", [100, 1000, 10_000, 100_000])
def test_the_cache_stays_below_its_limit(monkeypatch, size):
    most = 1_000_000
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", str(most))
    sizes = []
    for number in range(200 if size < 100_000 else 40):
        disk_cache.fetch(disk_cache.key(str(number)), lambda: bytes(size))
        sizes.append(disk_cache.info().bytes)
    assert max(sizes) <= most
    if sum(sizes[:1]) * len(sizes) > most:
        assert max(sizes) > 0.7 * most  # and most of it is used


def test_what_the_python_backend_writes_counts_too(monkeypatch):
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", "100k")
    for number in range(50):
        disk_cache.write_text(f"kernel{number}.py", "#" * 10_000)
        assert disk_cache.info().bytes <= 100 * 1024


def test_a_cache_from_before_the_limit_is_swept_at_the_first_write(folder, monkeypatch):
    for number in range(5):
        stored(number, age=number + 1)
    (folder / "written").unlink()
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", str(4 * ENTRY))
    stored(5)
    assert [number for number in range(6) if list(folder.rglob(disk_cache.key(str(number)) + "*"))] == [0, 1, 5]


def test_a_limit_of_nothing_keeps_nothing(monkeypatch):
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", "0")
    key, make = disk_cache.key("a"), Maker()
    assert disk_cache.fetch(key, make) == disk_cache.fetch(key, make) == make.payload
    assert (make.calls, disk_cache.info().entries) == (2, 0)


def test_without_a_limit_nothing_is_deleted(folder, monkeypatch):
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", "unlimited")
    monkeypatch.setattr(disk_cache, "prune", lambda _: pytest.fail("pruned"))
    stored(0)
    assert disk_cache.info().limit is None
    assert not (folder / "written").exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 1 << 30), (" ", 1 << 30), ("1000", 1000), ("2K", 2048), ("1.5 GiB", 3 << 29), ("3tb", 3 << 40)],
)
def test_how_a_limit_is_written(monkeypatch, text, size):
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", text)
    assert disk_cache.limit() == size


@pytest.mark.parametrize("text", ["much", "-1", "1X", "G", "1e9", "1 2", "9" * 400])
def test_a_limit_that_is_no_size_is_ignored_with_a_warning(monkeypatch, text):
    monkeypatch.setenv("DUALBCAST_CACHE_LIMIT", text)
    with pytest.warns(RuntimeWarning, match=r"DUALBCAST_CACHE_LIMIT is ignored.*write a number of bytes, 500M"):
        assert disk_cache.limit() == 1 << 30


def test_a_kernel_that_was_deleted_still_runs_where_it_is_loaded():
    import numpy as np

    from dualbcast import differentiable_broadcast

    f = differentiable_broadcast(lambda x: x * 3.25 + 1.75)
    x = np.arange(4.0)
    expected = f(x)
    assert disk_cache.info().entries > 0
    assert disk_cache.prune(0).left == 0
    np.testing.assert_array_equal(f(x), expected)
    np.testing.assert_array_equal(f.jacobian(x)["x"], np.full(4, 3.25))


LIMITED_RACE = """
import sys, time
from dualbcast import disk_cache as cache
turn, start = int(sys.argv[1]), float(sys.argv[2])
time.sleep(max(0, start - time.time()))
largest = made = 0
for repeat in range(300):
    number = (repeat * 7 + turn) % 60  # both processes want all entries, in other orders; 20 of them fit
    payload = bytes([number]) * 50_000
    def make():
        global made
        made += 1
        return payload
    assert cache.fetch(cache.key(str(number)), make) == payload
    largest = max(largest, cache.info().bytes)
print(largest, made)
"""


def test_two_processes_may_race_for_little_room(folder):
    most = 1_000_000
    start = str(time.time() + 0.7)
    command = [sys.executable, "-c", LIMITED_RACE]
    environment = os.environ | {"DUALBCAST_CACHE_LIMIT": str(most)}
    racers = [
        subprocess.Popen([*command, str(turn), start], env=environment, stdout=subprocess.PIPE, text=True)
        for turn in range(2)
    ]
    results = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    for largest, made in results:
        assert int(made) > 0
        # While one process deletes, the other may write entries that the next sweep counts.
        assert int(largest) <= 1.2 * most
    assert disk_cache.info().bytes <= most
    assert all(path.name.endswith(".bin") and path.name[0] != "." for path in (folder / "kernels").iterdir())
