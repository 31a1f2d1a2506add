"""A process of its own: imports, calls the HM-LSTM cell update once on 4 by 4 arrays, and prints how long each took."""

from __future__ import annotations

import json
import sys
import time

START = time.perf_counter()

import numpy as np  # noqa: E402


def main(what: str) -> None:
    """Print seconds as JSON: `imported` until all is imported, `first_call` from there to the first result."""
    arrays = [np.full((4, 4), 0.5, np.float32) for _ in range(4)] + [np.ones((4, 1), np.float32) for _ in range(2)]
    if what == "dualbcast":
        from dualbcast import differentiable_broadcast
        from dualbcast.cli.models import cell_update

        imported = time.perf_counter()
        differentiable_broadcast(cell_update).value_and_jacobian(*arrays, wrt=("c", "f", "i", "g"))
    elif what == "jax":
        import jax
        import jax_models

        imported = time.perf_counter()
        jax.block_until_ready(jax_models.cell_update(jax)(*map(jax.numpy.asarray, arrays)))
    else:
        imported = time.perf_counter()
    done = time.perf_counter()
    print(json.dumps({"imported": imported - START, "first_call": done - imported}))


if __name__ == "__main__":
    main(sys.argv[1])
