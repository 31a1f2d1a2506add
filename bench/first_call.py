"""A process of its own: imports one system, makes its first call of a case on 4 by 4 arrays, prints how long that took.

python bench/first_call.py SYSTEM cell|product32 [check]
"""

from __future__ import annotations

import json
import sys
import time

START = time.perf_counter()

import importlib  # noqa: E402

import numpy as np  # noqa: E402


def main(system: str, case: str, checked: bool) -> None:
    """Print seconds as JSON: `imported` until all is imported, `first_call` from there to the first result."""
    random = np.random.default_rng(0)
    arrays = [random.uniform(-1, 1, (4, 4)).astype(np.float32) for _ in range(32 if case == "product32" else 4)]
    if case == "cell":
        arrays += [np.ones((4, 1), np.float32)] * 2
    if system == "nothing":
        imported = done = time.perf_counter()
    else:
        module = importlib.import_module(f"with_{system}")
        imported = time.perf_counter()
        forms = getattr(module, {"cell": "cell_jacobian", "product32": "product"}[case])(
            [module.array(a) for a in arrays]
        )
        result = next(iter(forms.values()))()()
        done = time.perf_counter()
        if checked:
            import references
            import systems

            expected = references.cell_expected if case == "cell" else references.product_expected
            systems.checker(expected, arrays, 2e-5)([module.host(a) for a in systems.flat(result)])
    print(json.dumps({"imported": imported - START, "first_call": done - imported}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "check" in sys.argv[3:])
