"""Trains a hierarchical multiscale LSTM to predict the next character of a text: python docs/examples/hmlstm_lm.py

The text is Python's own reference manual, which every installation has: what `help("if")` prints, from `pydoc_data`.
It is English prose, needs no download, and is only read where it is. Paragraphs that it has several times are taken
once, so that what is held out was not seen before. Another version of Python has a slightly different text; `--text`
takes any other.

Everything that a run consists of is in its checkpoint, so one that is interrupted and resumed gives the same numbers
as one that is not, to the last bit.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    # Before NumPy is loaded. A second thread gains nothing for matrices as small as these, and where the machine has
    # other work to do, threads that wait for each other lose much.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hashlib
import json
import math
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from hmlstm import LAYERS, Array, Memory, Parameters, forgotten, initial, loss
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dualbcast import differentiable_broadcast, graph

HELD_OUT = 0.1  # of the text, at its end


# --- the text -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A text as numbers: the position of each character in `symbols`."""

    symbols: str
    train: Array
    held_out: Array
    digest: str

    @classmethod
    def of(cls, text: str) -> Text:
        symbols = "".join(sorted(set(text)))
        place = {symbol: at for at, symbol in enumerate(symbols)}
        numbers = np.array([place[symbol] for symbol in text])
        cut = round(len(numbers) * (1 - HELD_OUT))
        return cls(symbols, numbers[:cut], numbers[cut:], hashlib.sha256(text.encode()).hexdigest()[:16])

    @property
    def shares(self) -> Array:
        """How frequent each character is in training; as if each had been seen once more, since some may not be."""
        counts = np.bincount(self.train, minlength=len(self.symbols)) + 1
        return counts / counts.sum()

    @property
    def unigram(self) -> float:
        """Bits per character on what is held out, for one who knows these frequencies and nothing else."""
        return float(-np.log2(self.shares)[self.held_out].mean())

    def one_hot(self, numbers: Array) -> Array:
        return np.eye(len(self.symbols), dtype=np.float32)[numbers]


def manual() -> str:
    """Python's reference manual: each paragraph once, on one line."""
    from pydoc_data.topics import topics

    paragraphs = (" ".join(part.split()) for name in sorted(topics) for part in topics[name].split("\n\n"))
    return "\n".join(dict.fromkeys(paragraphs))


# --- training -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What a run is made with; a resumed one takes it from its checkpoint."""

    hidden: int = 128
    rows: int = 32
    time: int = 50
    rate: float = 0.003
    anneal: float = 400.0
    price: float = 0.2
    seed: int = 0
    every: int = 100

    def slope(self, step: int) -> Array:
        """Of the hard sigmoid: it rises to 5, so that the derivative becomes that of a step little by little."""
        return np.asarray(min(5.0, 0.2 + step / self.anneal), np.float32)

    def boundary_price(self, step: int) -> Array:
        """In bits for each boundary: it rises between the hundredth and the 400th step, when layers have some use."""
        return np.asarray(self.price * min(1.0, max(0.0, (step - 100) / 300)), np.float32)

    def step_size(self, step: int) -> float:
        """It rises for 100 steps, and falls with the square root of their number after the thousandth."""
        return self.rate * min(1.0, (step + 1) / 100, (1000 / (step + 1)) ** 0.5)


@dataclass(frozen=True)
class State:
    """All that a run consists of after some step.

    Attributes
    ----------
    step : int
        How many have been made.
    p, m, v : dict of array
        The parameters, and Adam's running means of their gradients and of the squares.
    memory : list
        What the layers hold.
    passes, at : int
        Where in the text it is: how often it has been read, and the position in each row.
    losses : list of float
        Bits per character of each step.
    held_out : list of tuple
        (step, bits per character, how often layers 1 and 2 end a segment) on the text that is held out.
    """

    step: int
    p: Parameters
    m: Parameters
    v: Parameters
    memory: Memory
    passes: int = 0
    at: int = 0
    losses: list[float] = field(default_factory=list)
    held_out: list[tuple[float, ...]] = field(default_factory=list)

    @classmethod
    def first(cls, settings: Settings, text: Text) -> State:
        p = initial(text.shares, settings.hidden, settings.seed)
        zeros = [{name: np.zeros_like(w) for name, w in p.items()} for _ in range(2)]
        return cls(0, p, *zeros, forgotten(settings.rows, settings.hidden))


@differentiable_broadcast
def adam(w, g, m, v, shrink, rate, fix_m, fix_v):
    """One weight after a step of Adam, and the running means of its gradient and of the square of that."""
    g *= shrink
    m += 0.1 * (g - m)
    v += 0.001 * (g * g - v)
    return w - rate * (m / fix_m) / (math.sqrt(v / fix_v) + 1e-8), m, v


value_and_grad = graph.value_and_grad(loss, has_aux=True)


def train(state: State, text: Text, settings: Settings) -> State:
    """The state after one more step."""
    x, passes, at = window(text.train, state, settings)
    memory = state.memory if at else forgotten(settings.rows, settings.hidden)
    slope, price = settings.slope(state.step), settings.boundary_price(state.step)
    (_, (bits, memory, _)), gradient = value_and_grad(state.p, text.one_hot(x), memory, slope, price)

    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradient.values()))
    step = state.step + 1
    numbers = min(1.0, 1.0 / norm), settings.step_size(state.step), 1 - 0.9**step, 1 - 0.999**step
    # As arrays, since numbers would be compiled in.
    scalars = [np.asarray(number, np.float32) for number in numbers]
    p, m, v = {}, {}, {}
    for name, w in state.p.items():
        p[name], m[name], v[name] = adam(w, gradient[name], state.m[name], state.v[name], *scalars)
    losses = [*state.losses, float(bits)]
    return State(step, p, m, v, memory, passes, at + settings.time, losses, state.held_out)


def window(numbers: Array, state: State, settings: Settings) -> tuple[Array, int, int]:
    """The characters of the next step, of shape (time + 1, rows), and where they are: the pass, and the position.

    A pass starts at a random place of the text, and each row reads a part of it from there.
    """
    length = (len(numbers) - 1) // settings.rows
    passes, at = state.passes, state.at
    if at + settings.time > length:
        passes, at = passes + 1, 0
    start = np.random.default_rng([settings.seed, passes]).integers(len(numbers))
    places = start + length * np.arange(settings.rows) + np.arange(at, at + settings.time + 1)[:, None]
    return numbers[places % len(numbers)], passes, at


def examine(state: State, text: Text, settings: Settings) -> State:
    """The state with what it reaches on the text that is held out, read from start to end in 32 rows."""
    length = (len(text.held_out) - 1) // 32
    places = length * np.arange(32) + np.arange(length + 1)[:, None]
    x = text.one_hot(text.held_out[places])
    memory, slope = forgotten(32, settings.hidden), settings.slope(state.step)
    bits, ends = 0.0, []
    with graph.no_grad():
        for start in range(0, length, settings.time):
            part = x[start : start + settings.time + 1]
            _, (found, memory, boundaries) = loss(state.p, part, memory, slope, slope)
            bits += found.item() * (len(part) - 1)
            ends += [[z.value.mean() for z in each] for each in boundaries]
    shares = np.mean(ends, axis=0).tolist()
    return replace(state, held_out=[*state.held_out, (state.step, bits / length, *shares)])


# --- checkpoints --------------------------------------------------------------------------------------------------


def save(path: Path, state: State, settings: Settings, text: Text) -> None:
    """Write a checkpoint; whoever reads the file finds the one before or this one, and never half of it."""
    arrays = {f"{kind}.{name}": w for kind in "pmv" for name, w in getattr(state, kind).items()}
    for layer, parts in enumerate(state.memory):
        arrays |= {f"memory.{layer}.{name}": np.asarray(part) for name, part in zip("chz", parts, strict=True)}
    position = {"step": state.step, "passes": state.passes, "at": state.at, "text": text.digest}
    arrays["about"] = np.array(json.dumps({"settings": asdict(settings), **position}))
    arrays["losses"], arrays["held_out"] = np.array(state.losses), np.array(state.held_out)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def load(path: Path, text: Text) -> tuple[State, Settings]:
    """Read a checkpoint.

    Raises
    ------
    click.ClickException
        It is of another text.
    """
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"]))
    if about["text"] != text.digest:
        raise click.ClickException(f"{path} is a checkpoint of another text")
    parts: dict[str, Parameters] = {kind: {} for kind in "pmv"}
    for key, array in arrays.items():
        kind, _, name = key.partition(".")
        if kind in parts:
            parts[kind][name] = array
    memory: Memory = [tuple(arrays[f"memory.{layer}.{name}"] for name in "chz") for layer in range(LAYERS)]
    memory[-1] = (*memory[-1][:2], 0.0)
    held_out = [tuple(each) for each in arrays["held_out"].tolist()]
    position = about["passes"], about["at"]
    state = State(about["step"], *parts.values(), memory, *position, arrays["losses"].tolist(), held_out)
    return state, Settings(**about["settings"])


# --- the command --------------------------------------------------------------------------------------------------


def run(state: State, text: Text, settings: Settings, steps: int, checkpoint: Path, console: Console) -> State:
    """Train up to a number of steps, with checkpoints on the way, and one where it is interrupted."""
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, completed=state.step)
        try:
            while state.step < steps or is_due(state, settings, steps):
                if not is_due(state, settings, steps):
                    state = train(state, text, settings)
                    progress.update(task, completed=state.step, description=f"{state.losses[-1]:.3f} bits/char")
                    continue
                state = examine(state, text, settings)
                save(checkpoint, state, settings, text)
                step, bits, *shares = state.held_out[-1]
                console.print(
                    f"step {step:.0f}: {np.mean(state.losses[-settings.every :]):.3f} bits/char, held out "
                    f"{bits:.3f}; layers 1 and 2 end {', '.join(f'{share:.1%}' for share in shares)} of the time"
                )
        except KeyboardInterrupt:
            save(checkpoint, state, settings, text)
            raise click.ClickException(f"interrupted at step {state.step}; go on with --resume") from None
    return state


def is_due(state: State, settings: Settings, steps: int) -> bool:
    """Whether it is time to examine the state, and that has not been done."""
    done = state.held_out[-1][0] if state.held_out else 0
    return state.step > done and (state.step % settings.every == 0 or state.step == steps)


@click.command(help="Train a hierarchical multiscale LSTM to predict the next character of a text.")
@click.option("--steps", default=600, show_default=True, help="Up to how many steps to train.")
@click.option("--hidden", default=Settings.hidden, show_default=True, help="Units of each layer.")
@click.option("--rows", default=Settings.rows, show_default=True, help="Parts of the text read side by side.")
@click.option("--time", default=Settings.time, show_default=True, help="Characters that a gradient goes back.")
@click.option("--rate", default=Settings.rate, show_default=True, help="Adam's, at its highest.")
@click.option("--anneal", default=Settings.anneal, show_default=True, help="Steps in which the slope rises by 1.")
@click.option("--price", default=Settings.price, show_default=True, help="Of a boundary, in bits.")
@click.option("--seed", default=Settings.seed, show_default=True)
@click.option("--every", default=Settings.every, show_default=True, help="Steps between two checkpoints.")
@click.option("--text", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A UTF-8 file.")
@click.option("--checkpoint", default="hmlstm.npz", show_default=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--resume", is_flag=True, help="Go on from the checkpoint, with its settings.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the losses and the segments found.")
def main(
    steps: int, source: Path | None, checkpoint: Path, resume: bool, plot: Path | None, **settings_given: Any
) -> None:
    console = Console()
    text = Text.of(source.read_text(encoding="utf-8") if source else manual())
    settings = Settings(**settings_given)
    state = State.first(settings, text)
    if resume:
        state, settings = load(checkpoint, text)
    weights = sum(w.size for w in state.p.values())
    console.print(
        f"{len(text.train):,} characters to train on, {len(text.held_out):,} held out, {len(text.symbols)} different; "
        f"{text.unigram:.2f} bits each if only their frequencies are known; {weights:,} weights",
        highlight=False,
    )
    before, start = state.step, time.perf_counter()
    state = run(state, text, settings, steps, checkpoint, console)
    console.print(f"{state.step - before} steps in {time.perf_counter() - start:.0f} s")
    if plot:
        from hmlstm_picture import draw

        draw(plot, state, text, settings)


if __name__ == "__main__":
    main()
