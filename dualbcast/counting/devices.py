"""The least time of a launch that was counted, by the published figures of a GPU: a bound, and no measurement."""

from __future__ import annotations

from dataclasses import dataclass

from dualbcast.counting.counter import Counts

# Of a multiprocessor since 7.0; each issues one instruction of a warp a cycle (Volta Tuning Guide, 1.4.1.1; the later
# guides and white papers say the same of their architectures).
_SCHEDULERS = 4


@dataclass(frozen=True)
class Device:
    """A GPU, by what its maker has published.

    Attributes
    ----------
    name : str
    cc : tuple of int
        The compute capability.
    multiprocessors : int
    lanes : int
        Multiply-adds of float32 that a multiprocessor makes in a cycle.
    peak : float
        Float32 operations a second, of which a multiply-add is two; the clock follows from it.
    bandwidth : float
        Bytes a second of its memory.
    cache : int
        Bytes of its second-level cache.
    source : str
        Where these figures stand.
    """

    name: str
    cc: tuple[int, int]
    multiprocessors: int
    lanes: int
    peak: float
    bandwidth: float
    cache: int
    source: str

    @property
    def clock(self) -> float:
        """The cycles a second at which it has its peak."""
        return self.peak / (2 * self.lanes * self.multiprocessors)

    @property
    def issue_rate(self) -> float:
        """The instructions of warps that it can issue a second."""
        return _SCHEDULERS * self.multiprocessors * self.clock

    def roofline(self, counts: Counts, dram_bytes: int | None = None) -> Roofline:
        """The least time of launches by memory and by issue.

        Parameters
        ----------
        counts : Counts
        dram_bytes : int, optional
            The bytes that memory has to move, by default `counts.dram_bytes`.
        """
        moved = counts.dram_bytes if dram_bytes is None else dram_bytes
        return Roofline(moved / self.bandwidth, counts.issued / self.issue_rate)


@dataclass(frozen=True)
class Roofline:
    """The least seconds that published rates allow.

    Attributes
    ----------
    memory : float
        To move the bytes.
    issue : float
        To issue the instructions, as many as in PTX.
    """

    memory: float
    issue: float

    @property
    def seconds(self) -> float:
        """The larger one."""
        return max(self.memory, self.issue)

    @property
    def bound(self) -> str:
        """Which one that is."""
        return "memory" if self.memory >= self.issue else "issue"


DEVICES = {
    device.name: device
    for device in (
        Device(
            "V100",
            (7, 0),
            80,
            64,
            15.7e12,
            900e9,
            6 << 20,
            "NVIDIA Tesla V100 GPU Architecture, WP-08608-001, Table 1: V100 SXM2",
        ),
        Device(
            "A100",
            (8, 0),
            108,
            64,
            19.5e12,
            1555e9,
            40 << 20,
            "NVIDIA A100 Tensor Core GPU Architecture (2020), Tables 1 and 4: A100 SXM4 40 GB",
        ),
        Device(
            "H100",
            (9, 0),
            132,
            128,
            66.9e12,
            3350e9,
            50 << 20,
            "NVIDIA H100 Tensor Core GPU Architecture (2022), Tables 1 to 3: H100 SXM5; data sheet: 3.35 TB/s",
        ),
        Device(
            "B200",
            (10, 0),
            148,
            128,
            75e12,
            7700e9,
            126 << 20,
            "NVIDIA Blackwell data sheet: HGX B200, an eighth of 600 TFLOPS and 62 TB/s; 148 multiprocessors and the "
            "cache as the driver reports them",
        ),
    )
}
