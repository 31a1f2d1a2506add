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
    for name in ("hmlstm", "divergence", "sweep"):
        if name in found:
            lines += [f"![{name}]({name}.png)", ""]
    return "\n".join(lines)


def _cell_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| mode | n | implementation | launches | ms | MB | of copy | speedup |"
    yield "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        moved = "-" if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f}"
        share = "-" if row["copy_share"] is None else f"{row['copy_share']:.0%}"
        cells = [row["mode"], row["n"], row["implementation"], row["launches"] or "-", f"{row['seconds'] * 1e3:.4f}"]
        yield "| " + " | ".join(map(str, [*cells, moved, share, f"{row['speedup']:.2f}"])) + " |"
    yield ""
