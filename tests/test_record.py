"""The records of the package mean what those of the standard library mean."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing
from typing import Any

import pytest

from dualbcast import record


class Ours(record.NamedTuple):
    """What it is."""

    first: int
    second: list[int] = [1]  # noqa: RUF012 (shared, as defaults of tuples are)
    third: str = "c"

    @property
    def twice(self) -> int:
        """A property."""
        return 2 * self.first

    def with_first(self, first: int) -> Ours:
        return self._replace(first=first)

    @classmethod
    def made(cls) -> Ours:
        return cls(7)


class Theirs(typing.NamedTuple):
    """What it is."""

    first: int
    second: list[int] = [1]  # noqa: RUF012
    third: str = "c"


@pytest.mark.parametrize("given", [((1,), {}), ((1, [2]), {"third": "x"}), ((), {"first": 3})])
def test_named_tuples(given: Any) -> None:
    args, named = given
    ours, theirs = Ours(*args, **named), Theirs(*args, **named)
    assert ours == theirs
    assert repr(ours).removeprefix("Ours") == repr(theirs).removeprefix("Theirs")
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(third="z") == theirs._replace(third="z")
    assert copy.copy(ours) == ours
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert type(pickle.loads(pickle.dumps(ours))) is Ours


def test_what_a_named_tuples_class_has() -> None:
    for name in ("_fields", "_field_defaults", "__doc__", "__match_args__", "__module__", "__slots__"):
        assert getattr(Ours, name) == getattr(Theirs, name), name
    assert Ours.__qualname__ == "Ours"
    assert list(Ours.__annotations__) == list(Theirs.__annotations__)
    assert Ours.made().with_first(4).twice == 8
    with pytest.raises(AttributeError):
        Ours(1).first = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Ours()  # type: ignore[call-arg]


def both() -> tuple[Any, Any]:
    """A class made by each."""
    made = []
    for module in (record, dataclasses):

        class Node:
            name: str
            count: int = 3
            found: list[int] = module.field(default_factory=list)
            where: str = module.field(default="", compare=False, repr=False)
            kept: dict[str, int] = module.field(default_factory=dict, init=False)

            def __post_init__(self) -> None:
                self.kept["made"] = self.count

        made.append(module.dataclass()(Node))
    return made[0], made[1]


def test_dataclasses() -> None:
    ours, theirs = both()
    for args, named in ((("a",), {}), (("a", 1, [2]), {"where": "here"}), ((), {"name": "b", "found": [4]})):
        one, other = ours(*args, **named), theirs(*args, **named)
        assert repr(one).partition("(")[2] == repr(other).partition("(")[2]
        assert vars(one) == vars(other)
        assert one == ours(*args, **named | {"where": "there"})
        assert (one != ours("z")) and (other != theirs("z"))
        assert vars(record.replace(one, name="c")) == vars(dataclasses.replace(other, name="c"))
    assert ours("a").found is not ours("a").found
    for kind in (ours, theirs):
        with pytest.raises(TypeError):
            hash(kind("a"))
        with pytest.raises(TypeError):
            kind()
