"""The page of a report: the machine, the parts that passed, and each figure beside its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dualbcast.cli import measure

FRAMEWORKS = ("torch", "jax", "TensorFlow")


def targets(found: dict[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """For each target its name, the figure wanted, the figure measured, and whether it is met, for finished parts."""
    if cell := found.get("hmlstm"):
        rows = [row for row in cell["rows"] if row["mode"] == "derivatives"]
        fused = {row["n"]: row for row in rows if row["implementation"].startswith("fused")}
        least = min(row["speedup"] for row in fused.values())
        reverse = {row["n"]: row for row in rows if row["implementation"].startswith("reverse")}
        bound = min(reverse[n]["bytes"] / row["bytes"] for n, row in fused.items())
        name = f"HM-LSTM derivatives over the reverse kernels, at every n (by bytes moved {bound:.2f})"
        yield name, "≥ 4.3", f"{least:.2f}", least >= 4.3
        ratios = []
        for n, own in fused.items():
            peers = [r["seconds"] for r in rows if r["n"] == n and r["implementation"].startswith(FRAMEWORKS)]
            if peers:
                ratios.append(min(peers) / own["seconds"])
        if ratios:
            yield "over the best framework, at every n", "≥ 1.2", f"{min(ratios):.2f}", min(ratios) >= 1.2
        shares = [row["copy_share"] for n, row in fused.items() if n >= 4096]
        if shares:
            yield "share of copy bandwidth, n ≥ 4096", "≥ 90 %", f"{min(shares):.0%}", min(shares) >= 0.9
        if host := cell["host_seconds_per_call"] * 1e6:  # it is measured last
            yield "host time of a call", "≤ 10 µs", f"{host:.1f} µs", host <= 10
    if sweep := found.get("sweep"):
        for row in sweep["rows"]:
            if row["arity"] == 18:
                share = row["copy_share"]
                yield "arity 18: share of copy bandwidth", "≥ 85 %", f"{share:.0%}", share >= 0.85
        spills = sum(
            row.get(key) or 0 for row in sweep["rows"] for key in row if key.startswith("sm_") and "spill" in key
        )
        yield "bytes spilled at any arity", "0", str(spills), spills == 0
    if divergence := found.get("divergence"):
        random = [row for row in divergence["rows"] if row["overhead"] is not None]
        if random:
            worst = max(row["overhead_by_bytes"] for row in random)
            whole = max(row["overhead"] for row in random)
            name = f"random over uniform control, by bytes moved ({whole:+.0%} with those that it has to move more)"
            yield name, "≤ +10 %", f"{worst:+.0%}", worst <= 0.1


def summary(device: str, found: dict[str, Any], parts: Sequence[Any], seconds: float) -> str:
    """The page, in Markdown."""
    any_record: dict[str, Any] = next(iter(found.values()), {})
    driver = any_record.get("driver", {})
    versions = ", ".join(f"{name} {version}" for name, version in measure.versions().items())
    peers = ", ".join(f"{name} {version}" for name, version in found.get("hmlstm", {}).get("peers", {}).items())
    lines = [
        f"# {device}",
        "",
        f"Driver {driver.get('release') or 'unknown'} (CUDA {driver.get('cuda') or 'unknown'}); {measure.cpu_model()}; "
        f"commit {measure.commit() or 'unknown'}; {any_record.get('date', 'no date')}; {seconds:.0f} s.",
        "",
        f"{versions}; frameworks: {peers or 'none'}.",
        "",
        "| part | | s |",
        "| --- | --- | ---: |",
        *(f"| {part.name} | {part.status} | {part.took:.0f} |" for part in parts),
        "",
    ]
    if judged := list(targets(found)):
        lines += ["| figure | wanted | measured | |", "| --- | ---: | ---: | --- |"]
        lines += [f"| {name} | {wanted} | {got} | {'met' if met else 'missed'} |" for name, wanted, got, met in judged]
        lines.append("")
    if cell := found.get("hmlstm"):
        lines += _cell_table(cell["rows"])
    lines += _counted_table(device, found)
    for name in ("hmlstm", "divergence", "sweep"):
        if name in found:
            lines += [f"![{name}]({name}.png)", ""]
    return "\n".join(lines)


# The fields that name a row of an experiment, measured and counted.
_KEYS = {"hmlstm": ("n", "mode", "implementation"), "divergence": ("control", "pattern"), "sweep": ("arity",)}


def _counted_table(device: str, found: dict[str, Any]) -> Iterator[str]:
    """Counted bounds beside measured times, for the rows that have both: the first look at what is off.

    The bytes at the speed of the large copy of the run; and, on a GPU with published rates, the larger of the times to
    move the bytes and to issue the instructions.
    """
    lines = []
    for name, keys in _KEYS.items():
        measured, counted = found.get(name), found.get(f"{name}_counted")
        if not (measured and counted):
            continue
        times = {tuple(row[key] for key in keys): row["seconds"] for row in measured["rows"]}
        for row in counted["rows"]:
            seconds = times.get(tuple(row[key] for key in keys))
            if seconds is not None:
                text = ", ".join(f"{key} {row[key]}" if key in ("n", "arity") else row[key] for key in keys)
                bound = _dram_bytes(row, measured) / measured["copy_bytes_per_second"]
                least = _published(device, row)
                rates = "-" if least is None else f"{least * 1e6:.1f}"
                share = max(bound, least or 0) / seconds
                cells = f"{seconds * 1e6:.1f} | {bound * 1e6:.1f} | {rates} | {share:.0%}"
                lines.append(f"| {name}: {text} | {cells} |")
    if lines:
        yield "| counted beside measured | measured, µs | bytes at a copy's speed, µs | published rates, µs | share |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        yield from lines
        yield ""


def _dram_bytes(row: dict[str, Any], measured: dict[str, Any]) -> float:
    """The bytes that a counted row has to move at least."""
    if "dram_bytes" in row:
        return float(row["dram_bytes"])
    return float(row["H100_dram_per_element"] * measured["parameters"]["n"] ** 2)


def _published(device: str, row: dict[str, Any]) -> float | None:
    """The least seconds of a row by the published rates of the device, if they are known."""
    for name in ("V100", "A100", "H100", "B200"):
        if name in device:
            least = row.get(f"{name}_seconds", row.get(f"{name}_least_seconds"))
            return None if least is None else float(least)
    return None


def _cell_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| mode | n | implementation | launches | ms | MB | of copy | speedup |"
    yield "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        moved = "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f}"
        share = "-" if row["copy_share"] is None else f"{row['copy_share']:.0%}"
        cells = [row["mode"], row["n"], row["implementation"], row["launches"] or "-", f"{row['seconds'] * 1e3:.4f}"]
        yield "| " + " | ".join(map(str, [*cells, moved, share, f"{row['speedup']:.2f}"])) + " |"
    yield ""
