"""What notebooks show of a Jacobian, a Hessian and an explanation: every figure is that of the object."""

from __future__ import annotations

import re
from collections import namedtuple
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, from_source

X = np.linspace(0.5, 2.0, 12).reshape(3, 4)
ROW = np.array([1.0, 2.0, 3.0, 4.0])


class Page(HTMLParser):
    """The tables of a page as lists of rows of cells, and the texts of other elements by their names."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[tuple[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        assert dict(attributes).keys() <= {"style"}
        assert not re.search(r"color|background", str(dict(attributes).get("style"))), "the notebook has the colours"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append((tag, ""))
        else:
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open:
            return
        if self._open[-1] in ("th", "td"):
            kind, text = self.rows[-1][-1]
            self.rows[-1][-1] = kind, text + data
        elif self._open[-1] in self.texts:
            self.texts[self._open[-1]][-1] += data

    @property
    def cells(self) -> list[list[str]]:
        return [[text for _, text in row] for row in self.rows]


def check_blocks(derivatives: Any) -> Page:
    """Compare the table of a Jacobian or Hessian with its blocks."""
    page, wrt, order = Page(derivatives._repr_html_()), derivatives.wrt, derivatives._order
    title, (stored, *_) = page.texts["div"][0], page.texts["small"]
    arrays: dict[str, Any] = {}
    heads, *rows = page.cells
    assert heads == ["output", *[""] * (order - 1), *[f"∂/∂{name}" for name in wrt]]
    assert len(rows) == derivatives.outputs * len(wrt) ** (order - 1)
    for number, row in enumerate(rows):
        output, *first = np.unravel_index(number, (derivatives.outputs, *[len(wrt)] * (order - 1)))
        assert row[0] == (derivatives.labels[output] or "out")
        assert row[1:order] == [f"∂/∂{wrt[at]}" for at in first]
        for last, text in enumerate(row[order:]):
            block = derivatives[output, *[wrt[at] for at in first], wrt[last]]
            assert title.endswith(f"blocks of shape {block.shape}, {block.dtype}")
            if text.startswith("array "):
                assert arrays.setdefault(text, block) is block, "one number for one array"
                assert block.size <= 1 or block.strides != (0,) * block.ndim
            else:
                assert (block == block.dtype.type(float(text))).all()
                assert block.strides == (0,) * block.ndim
    assert sorted(arrays) == [f"array {at}" for at in range(len(arrays))]
    size = sum(block.nbytes for block in arrays.values())
    assert stored == f"{len(arrays)} array{'s' * (len(arrays) != 1)} stored, {size:,} bytes"
    return page


@differentiable_broadcast
def several(x, y, z):
    return x * y, 3 * x, x * y + x, 0.1 * z


def test_a_jacobian_of_several_outputs() -> None:
    page = check_blocks(several.jacobian(X, ROW, 2.0))
    assert page.cells[2] == ["1", "3.0", "0", "0"]
    assert page.texts["div"][0] == "Jacobian: blocks of shape (3, 4), float64"
    check_blocks(several.jacobian(X.astype(np.float32), ROW.astype(np.float32), np.float32(2), wrt=("z", "x")))


def test_a_hessian() -> None:
    page = check_blocks(several.hessian(X, ROW, 2.0, wrt=("y", "x")))
    assert page.cells[1] == ["0", "∂/∂y", "0", "1.0"]
    check_blocks(square.hessian(X, ROW))


@differentiable_broadcast
def square(x, y):
    return x**3 * y


@pytest.mark.parametrize("shape", [(), (0,), (5,)])
def test_shapes_of_few_elements(shape: tuple[int, ...]) -> None:
    x = np.ones(shape) * 2
    check_blocks(square.jacobian(x, 3.0))
    check_blocks(square.hessian(x, 3.0))


def test_a_jacobian_in_nothing() -> None:
    page = Page(square.jacobian(X, ROW, wrt=())._repr_html_())
    assert page.cells == [["output"], ["out"]]
    assert page.texts["small"] == ["0 arrays stored, 0 bytes"]


Greeks = namedtuple("Greeks", ["delta", "gamma"])


def test_outputs_have_their_labels() -> None:
    @differentiable_broadcast
    def labelled(x, y):
        return Greeks(x * y, Greeks(y, 1.0 * x))

    page = check_blocks(labelled.jacobian(X, ROW))
    assert [row[0] for row in page.cells[1:]] == ["delta", "gamma.delta", "gamma.gamma"]


def test_large_tables_are_cut() -> None:
    names = [f"x{at}" for at in range(30)]
    f = from_source(f"def f({', '.join(names)}):\n    return {' * '.join(names)}")
    numbers = [1.0 + at / 10 for at in range(30)]
    page = Page(f.jacobian(*numbers)._repr_html_())
    assert page.cells == [["output", *[f"∂/∂x{at}" for at in range(12)]], ["out", *[f"array {at}" for at in range(12)]]]
    assert page.texts["small"] == ["30 arrays stored, 240 bytes", "18 columns more"]
    page = Page(f.hessian(*numbers)._repr_html_())
    assert len(page.cells) == 1 + 24
    assert page.texts["small"][1:] == ["6 rows more", "18 columns more"]


def test_names_are_escaped() -> None:
    line = "lambda x, y: x * y if x<y else y  # <b>bold</b> &amp; <script>"
    text = from_source(line).explain("float64", "float64")._repr_html_()
    assert "<lambda>" not in text
    page = Page(text)
    assert page.texts["div"][0].startswith("<lambda>: 3 outputs (out, out_dx, out_dy)")
    assert dict(page.cells)["branches"].startswith(f"line 1  {line}  →  ")


def test_an_explanation() -> None:
    explained = several.explain(X, ROW, 2.0)
    page = Page(explained._repr_html_())
    rows = dict(page.cells)
    assert {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", rows["operations"])} == explained.operations
    read, written = re.fullmatch(r"([\d,]+) bytes read, ([\d,]+) written", rows["memory"]).groups()  # type: ignore[union-attr]
    assert (int(read.replace(",", "")), int(written.replace(",", ""))) == (
        explained.bytes_read,
        explained.bytes_written,
    )
    assert rows["layout"] == explained.layout
    (title,) = page.texts["div"]
    outputs = ", ".join(explained.outputs)
    assert (
        title == f"several: {len(explained.outputs)} outputs ({outputs}) of shape {explained.shape}, {explained.dtype}"
    )


def test_an_explanation_with_branches_and_passes() -> None:
    @differentiable_broadcast
    def branches(x, y):
        if x > 1:
            return x * y
        if y > 2:
            return math_free(x)
        return y

    explained = branches.explain(X, ROW, passes=True)
    page = Page(explained._repr_html_())
    shown = [text for _, text in page.cells]
    assert [text for text in shown if "→" in text] == [*explained.branches, *explained.orders]
    assert [text.removesuffix(": no change") for text in page.texts["summary"]] == [
        name for name, _ in explained.passes
    ]
    assert page.texts["pre"] == [text for _, text in explained.passes]


def math_free(x):
    return x * x * x


def test_no_array_is_printed() -> None:
    large = np.full((300, 300), 0.123456789)
    jacobian = square.jacobian(large, 2.0)
    for text in (jacobian._repr_html_(), square.explain(large, 2.0)._repr_html_()):
        assert len(text) < 2000
        assert "0.1234" not in text
