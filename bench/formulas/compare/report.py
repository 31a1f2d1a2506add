"""The table of measured formulas, ratio by ratio, with a summary of each half of the corpus."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from bench.formulas.compare.measure import OURS, PEERS, Result

__all__ = ["fastest_peer", "ratio", "table"]

GOAL = 1.3
HALVES = ("tune", "report")


def ratio(result: Result, other: str) -> float:
    """A system's time over ours, the median over the turns that both had; NaN without a time."""
    taken = result["seconds"].get(other, [])
    if not taken:
        return math.nan
    return float(median(theirs / ours for theirs, ours in zip(taken, result["seconds"][OURS], strict=False)))


def fastest_peer(result: Result) -> tuple[str, float]:
    """The peer with the lowest ratio, and that; "" and NaN where no peer has a time."""
    ratios = {peer: ratio(result, peer) for peer in PEERS}
    known = {peer: value for peer, value in ratios.items() if math.isfinite(value)}
    best = min(known, key=lambda peer: known[peer], default="")
    return best, known.get(best, math.nan)


def table(results: dict[str, Result]) -> str:
    """The table as text, each half sorted by the ratio of the fastest peer.

    `floor` is the floor's time over ours. `ours` and `theirs` say how far the results of dualbcast and of the fastest
    peer are from dualbcast's in float64.
    """
    head = f"{'formula':34} {'field':16} {'outputs':>7} {'wrt':>3} {'ms':>7} {'floor':>6}"
    head += "".join(f"{peer:>8}" for peer in PEERS) + f"{'best':>7}{'ours':>8}{'theirs':>8}  fastest peer"
    lines: list[str] = []
    for half in HALVES:
        chosen = {name: result for name, result in results.items() if result["half"] == half}
        if not chosen:
            continue
        lines += [f"half: {half}", head]
        for name, result in sorted(chosen.items(), key=lambda item: _order(fastest_peer(item[1])[1])):
            lines.append(_row(name, result))
        lines += ["", *_summary(half, list(chosen.values())), ""]
    wrong = [(name, form, what) for name, result in results.items() for form, what in result["wrong"].items()]
    if wrong:
        lines += [
            "results that differ from dualbcast's in float64; such forms of peers are not timed:",
            *(f"  {name}, {form}: {what}" for name, form, what in wrong),
            "",
        ]
    missing = [(name, peer, why) for name, result in results.items() for peer, why in result["left_out"].items()]
    if missing:
        lines += ["left out:", *(f"  {name}, {peer}: {why}" for name, peer, why in missing), ""]
    return "\n".join(lines)


def _order(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _row(name: str, result: Result) -> str:
    ours = median(result["seconds"][OURS])
    share = ratio(result, "floor")
    peer, best = fastest_peer(result)
    row = f"{name:34} {result['field']:16} {result['outputs']:7} {result['wrt']:3} {ours * 1e3:7.2f} "
    row += f"{share:6.0%}" if math.isfinite(share) else f"{'':6}"
    row += "".join(_number(ratio(result, peer), 8) for peer in PEERS)
    differences = result["differences"]
    row += _number(best, 7) + "".join(f"{differences.get(name, math.nan):8.0e}" for name in (OURS, peer))
    return f"{row}  {peer}{', ' if peer else ''}{result['forms'].get(peer, '')}".rstrip(", ")


def _number(value: float, width: int) -> str:
    return f"{value:{width}.2f}" if math.isfinite(value) else f"{'-':>{width}}"


def _summary(half: str, results: list[Result]) -> list[str]:
    ratios = [value for value in (fastest_peer(result)[1] for result in results) if math.isfinite(value)]
    behind, reached = sum(value < 1 for value in ratios), sum(value >= GOAL for value in ratios)
    lines = [
        f"{half}: {len(results)} formulas, {behind} behind the fastest peer, {reached} at least {GOAL} times as fast, "
        f"geometric mean {_mean(ratios):.2f}"
    ]
    for peer in PEERS:
        known = [value for value in (ratio(result, peer) for result in results) if math.isfinite(value)]
        if known:
            behind = sum(value < 1 for value in known)
            lines.append(f"  {peer}: {len(known)} formulas, {behind} behind, geometric mean {_mean(known):.2f}")
    return lines


def _mean(ratios: Iterable[float]) -> float:
    logs = [math.log(value) for value in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
