"""Published formulas of many fields, which compare dualbcast with other systems: `python -m bench.formulas`."""
