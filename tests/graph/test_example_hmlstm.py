"""The example of docs/examples: its gradients, that it learns, and that a run that is interrupted is the same run."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from dualbcast import graph
from dualbcast.testing import check_derivatives

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))

import hmlstm
import hmlstm_lm

Array = Any
QUIET = Console(quiet=True)


# --- the model in NumPy -------------------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def hard_sigmoid(x: Array) -> Array:
    return np.clip((x + 1) / 2, 0, 1)


def cell(c: Array, h: Array, f: Array, i: Array, o: Array, g: Array, z: Array, below: Array) -> tuple[Array, Array]:
    """The paper's three cases, weighted: where z and below are 0 or 1 it is one of them."""
    flush, update, copy = z, (1 - z) * below, (1 - z) * (1 - below)
    write = sigmoid(i) * np.tanh(g)
    new = flush * write + update * (sigmoid(f) * c + write) + copy * c
    return new, copy * h + (1 - copy) * sigmoid(o) * np.tanh(new)


class Model:
    """The loss in NumPy.

    The first call detects boundaries and notes them. The next ones take them as they were, plus what the hard sigmoid
    has changed since: so the slopes of the loss are those that straight-through gradients stand for.
    """

    def __init__(self, x: Array, memory: Any, slope: float, price: float) -> None:
        self.x, self.memory, self.slope, self.price = x, memory, slope, price
        self.noted: list[tuple[Array, Array]] = []

    def loss(self, p: dict[str, Array]) -> float:
        is_first = not self.noted
        noted = iter(self.noted.copy())
        memory, total, ends = [*self.memory], 0.0, []
        for x, wanted in itertools.pairwise(self.x):
            after: list[Any] = []
            for layer in range(3):
                c, h, z = memory[layer]
                _, h_below, below = after[-1] if layer else (None, x, np.ones((len(x), 1)))
                s = h @ p[f"own{layer}"] + below * (h_below @ p[f"below{layer}"]) + p[f"bias{layer}"]
                if layer < 2:
                    s = s + z * (memory[layer + 1][1] @ p[f"above{layer}"])
                n = h.shape[1]
                gates = [s[:, start : start + n] for start in range(0, 4 * n, n)]
                c, h = cell(c, h, *gates, z, below)
                if layer < 2:
                    soft = hard_sigmoid(self.slope * s[:, 4 * n :])
                    if is_first:
                        self.noted.append(((s[:, 4 * n :] > 0).astype(float), soft))
                        z = self.noted[-1][0]
                    else:
                        start, before = next(noted)
                        z = start + soft - before
                    z = below * z
                    ends.append(z / 3**layer)
                after.append((c, h, z))
            memory = after
            h_all = [h for _, h, _ in memory]
            gate = sigmoid(sum(h @ p[f"gate{layer}"] for layer, h in enumerate(h_all)))
            e = sum(gate[:, [layer]] * (h @ p[f"mix{layer}"]) for layer, h in enumerate(h_all))
            scores = np.maximum(e, 0) @ p["output"] + p["bias"]
            likely = np.exp((scores * wanted).sum(axis=1)) / np.exp(scores).sum(axis=1)
            total -= np.log2(likely).mean()
        return total / (len(self.x) - 1) + 2 * self.price * np.mean(ends)


def example(rows: int = 3, hidden: int = 4, time: int = 7, symbols: int = 5) -> tuple[Any, ...]:
    """Parameters, characters, memory and slope, in float64, for a model in which much happens."""
    draw = np.random.default_rng(3)
    p = hmlstm.initial(np.full(symbols, 1 / symbols), hidden, 1, np.float64)
    p = {name: w + draw.normal(0, 0.3, w.shape) for name, w in p.items()}
    x = np.eye(symbols)[draw.integers(symbols, size=(time + 1, rows))]
    memory: Any = [
        (draw.normal(size=(rows, hidden)), draw.normal(size=(rows, hidden)), np.array([[0.0], [1.0], [0.0]]))
        for _ in range(2)
    ]
    memory.append((draw.normal(size=(rows, hidden)), draw.normal(size=(rows, hidden)), 0.0))
    return p, x, memory, np.asarray(0.5)


def test_the_gradient_of_the_loss_is_that_of_differences() -> None:
    p, x, memory, slope = example()
    arguments = p, x, memory, slope, np.asarray(0.3)
    (value, (bits, _, boundaries)), gradient = graph.value_and_grad(hmlstm.loss, has_aux=True)(*arguments)
    model = Model(x, memory, float(slope), 0.3)
    assert value == pytest.approx(model.loss(p), rel=1e-12)
    ends = [z for each in boundaries for z in each]
    shares = np.mean(ends[::2]), np.mean(ends[1::2])
    assert bits == pytest.approx(value - 0.3 * (shares[0] + shares[1] / 3), rel=1e-12)
    # All three cases occur.
    assert 0.1 < shares[1] < shares[0] < 0.9

    for name, w in p.items():
        places = [*np.ndindex(w.shape)][::3]
        wanted = []
        for place in places:
            values = []
            for change in (1e-6, -1e-6):
                near = w.copy()
                near[place] += change
                values.append(model.loss({**p, name: near}))
            wanted.append((values[0] - values[1]) / 2e-6)
        found = [gradient[name][place] for place in places]
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-8, err_msg=name)
    # The detectors are the last columns.
    assert all((gradient[f"own{layer}"][:, -1] != 0).all() for layer in range(2))


def test_the_cell_is_that_of_the_paper() -> None:
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(6, 4, 5))
    z, below = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[0.0], [1.0], [0.0], [1.0]])
    (c, h), jacobian = hmlstm.cell.value_and_jacobian(*numbers, z, below)
    wanted = cell(*numbers, z, below)
    np.testing.assert_allclose((c, h), wanted, rtol=1e-13)
    np.testing.assert_array_equal((c[0], h[0]), numbers[:2, 0])  # a copy, to the last bit
    assert check_derivatives(hmlstm.cell, *numbers, z, below, wrt=("c", "h", "f", "i", "o", "g")) < 1e-6
    for name, near in (("z", (1 - z, below)), ("z_below", (z, 1 - below))):
        # c is linear in each, so its derivative is the difference that the other choice makes.
        change = (cell(*numbers, *near)[0] - wanted[0]) / (near[0] - z + near[1] - below)
        np.testing.assert_allclose(jacobian[0, name], change, rtol=1e-12, atol=1e-15)


def test_adam() -> None:
    draw = np.random.default_rng(0)
    w, g = draw.normal(size=(2, 50))
    m, v = np.zeros((2, 50))
    mean, square, wanted = np.zeros(50), np.zeros(50), w.copy()
    for step in range(1, 4):
        w, m, v = hmlstm_lm.adam(w, g * step, m, v, 0.5, 0.01, 1 - 0.9**step, 1 - 0.999**step)
        mean, square = 0.9 * mean + 0.1 * (g * step / 2), 0.999 * square + 0.001 * (g * step / 2) ** 2
        wanted -= 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(w, wanted, rtol=1e-12)


# --- training -----------------------------------------------------------------------------------------------------

SMALL = hmlstm_lm.Settings(hidden=12, rows=6, time=8, rate=0.02, every=4)


def words(count: int = 600) -> str:
    return " ".join(np.random.default_rng(0).choice(["hither", "and", "yon", "the"], count))


@pytest.fixture(scope="module")
def text() -> Any:
    return hmlstm_lm.Text.of(words())


@pytest.mark.slow
def test_it_learns(text: Any, tmp_path: Path) -> None:
    state = hmlstm_lm.State.first(SMALL, text)
    state = hmlstm_lm.run(state, text, replace(SMALL, every=120), 120, tmp_path / "c.npz", QUIET)
    assert state.losses[0] == pytest.approx(text.unigram, abs=0.3)
    assert np.mean(state.losses[-10:]) < text.unigram - 1
    assert state.held_out[-1][1] < text.unigram - 1


def test_a_run_that_is_interrupted_and_resumed_is_the_same_run(
    text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few characters that the text is read several times.
    short = hmlstm_lm.Text(text.symbols, text.train[:160], text.held_out, "")
    whole = hmlstm_lm.run(hmlstm_lm.State.first(SMALL, short), short, SMALL, 14, tmp_path / "whole.npz", QUIET)
    assert whole.passes > 2

    path, stops = tmp_path / "parts.npz", {"train": [5, 9], "examine": [8, 14]}

    def stopping(name: str) -> Any:
        function = getattr(hmlstm_lm, name)

        def interrupted(state: Any, *others: Any) -> Any:
            after = function(state, *others)
            if state.step in stops[name]:
                stops[name].remove(state.step)
                raise KeyboardInterrupt
            return after

        return interrupted

    for name in stops:
        monkeypatch.setattr(hmlstm_lm, name, stopping(name))
    state = hmlstm_lm.State.first(SMALL, short)
    for at in (5, 8, 9, 14):
        with pytest.raises(Exception, match=f"interrupted at step {at}"):
            hmlstm_lm.run(state, short, SMALL, 14, path, QUIET)
        state, settings = hmlstm_lm.load(path, short)
        assert settings == SMALL
    parts = hmlstm_lm.run(state, short, settings, 14, path, QUIET)
    same(parts, whole)
    same(hmlstm_lm.load(path, short)[0], whole)


def same(one: Any, other: Any) -> None:
    """Two states are the same to the last bit."""
    assert (one.step, one.passes, one.at) == (other.step, other.passes, other.at)
    assert one.losses == other.losses and one.held_out == other.held_out
    for kind in "pmv":
        for name, w in getattr(one, kind).items():
            np.testing.assert_array_equal(w, getattr(other, kind)[name], err_msg=f"{kind}: {name}", strict=True)
    for layer, parts in enumerate(one.memory):
        for mine, yours in zip(parts, other.memory[layer], strict=True):
            np.testing.assert_array_equal(mine, yours)


def test_a_checkpoint_is_whole_or_the_one_before(text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, state = tmp_path / "c.npz", hmlstm_lm.State.first(SMALL, text)
    hmlstm_lm.save(path, state, SMALL, text)

    def fail(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="full"):
        hmlstm_lm.save(path, replace(state, step=7), SMALL, text)
    assert [each.name for each in tmp_path.iterdir()] == ["c.npz"]
    assert hmlstm_lm.load(path, text)[0].step == 0


def test_the_command(tmp_path: Path) -> None:
    source, checkpoint, picture = tmp_path / "t.txt", str(tmp_path / "c.npz"), tmp_path / "p.png"
    source.write_text(words())
    sizes = ["--text", str(source), "--hidden", "12", "--rows", "6", "--time", "8", "--every", "4"]
    options = [*sizes, "--checkpoint", checkpoint]
    first = CliRunner().invoke(hmlstm_lm.main, ["--steps", "4", *options])
    assert first.exit_code == 0, first.output
    more = CliRunner().invoke(hmlstm_lm.main, ["--steps", "6", "--resume", "--plot", str(picture), *options])
    assert more.exit_code == 0, more.output
    assert "step 6:" in more.output and "step 4:" not in more.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    source.write_text("another text, which is " + words())
    other = CliRunner().invoke(hmlstm_lm.main, ["--steps", "8", "--resume", *options])
    assert other.exit_code == 1 and "another text" in other.output


def test_the_manual_has_each_paragraph_once() -> None:
    lines = hmlstm_lm.manual().split("\n")
    assert len(lines) == len(set(lines)) > 1000


@pytest.mark.slow
def test_the_real_example_learns(tmp_path: Path) -> None:
    """Its first steps: the loss that docs/guides/hmlstm.md states takes minutes."""
    text, settings = hmlstm_lm.Text.of(hmlstm_lm.manual()), hmlstm_lm.Settings()
    state = hmlstm_lm.State.first(settings, text)
    state = hmlstm_lm.run(state, text, settings, 40, tmp_path / "c.npz", QUIET)
    # It was 4.40 of 4.92. Other versions of Python have other texts.
    assert text.unigram > 4.5
    assert state.held_out[-1][1] < text.unigram - 0.3
