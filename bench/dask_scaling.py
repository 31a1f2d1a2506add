"""One and two workers of Dask, and threads: seconds for the value and all derivatives of an array that no worker holds.

python bench/dask_scaling.py            the oscillators of problems.py, summed over chunks
python bench/dask_scaling.py --overhead one kernel for a chunk on one thread, or on as many as there are CPUs

The ways take turns, and the least time of each counts, since the machine may have other work.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import distributed
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import problems

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.interop import dask_arrays

ROUNDS, CHUNK, CHUNKS = 5, 2_000_000, 64


def places(block: np.ndarray) -> np.ndarray:
    """Places from -2 to 2, for indices."""
    return block * (4.0 / (CHUNK * CHUNKS)) - 2.0


def outputs() -> tuple[Any, ...]:
    """The sums of the value and of its three partial derivatives."""
    oscillator = differentiable_broadcast(problems.oscillator)
    x = da.arange(CHUNK * CHUNKS, chunks=CHUNK, dtype=np.int64).map_blocks(places, dtype=float)
    value, jacobian = oscillator.value_and_jacobian(x, 0.5, 1.2, wrt=(0, 1, 2))
    return (value.sum(), *[jacobian[name].sum() for name in jacobian.wrt])


@contextlib.contextmanager
def workers(count: int) -> Iterator[Callable[[], Any]]:
    """A computation by so many processes of one thread."""
    lazy = outputs()
    with (
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=None
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield lambda: client.gather(client.compute(lazy))


def threads(count: int) -> Callable[[], Any]:
    """A computation by so many threads of this process."""
    lazy = outputs()
    return lambda: dask.compute(*lazy, scheduler="threads", num_workers=count)


def least(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least seconds of each way; all give the same."""
    wanted = {name: way() for name, way in ways.items()}
    first = next(iter(wanted.values()))
    for found in wanted.values():
        np.testing.assert_array_equal(found, first)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    return {name: min(each) for name, each in times.items()}


def scaling(rounds: int) -> None:
    """Print the times of one and two workers, and of one and two threads."""
    with workers(1) as one, workers(2) as two:
        found = least({"1 worker": one, "2 workers": two, "1 thread": threads(1), "2 threads": threads(2)}, rounds)
    for name, seconds in found.items():
        before = found["1 worker" if "worker" in name else "1 thread"]
        print(f"{name:<10} {seconds:6.2f} s   {before / seconds:.2f} times as fast")


def overhead(rounds: int) -> None:
    """Print the times of two threads of Dask, each of which runs kernels on one thread, or on all CPUs."""
    own = dask_arrays.num_threads

    def with_all() -> Any:
        dask_arrays.num_threads = lambda _: own(dualbcast.get_num_threads())
        try:
            return compute()
        finally:
            dask_arrays.num_threads = own

    compute = threads(2)
    for name, seconds in least({"kernels on 1 thread": compute, "kernels on all CPUs": with_all}, rounds).items():
        print(f"{name:<20} {seconds:6.2f} s")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    (overhead if arguments.overhead else scaling)(arguments.rounds)


if __name__ == "__main__":
    main()
