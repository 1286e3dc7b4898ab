"""The CPU cores of a host, for who runs LoRA on them."""

from __future__ import annotations


class Cores:
    """How many there are in `all`; each is held until a moment known from the start."""

    __slots__ = ("_held", "all", "most_busy")

    def __init__(self, cores: int) -> None:
        self.all = cores
        self.most_busy = 0
        self._held: list[tuple[float, int]] = []  # until when, how many

    def free(self, now_s: float) -> int:
        """Cores that nobody holds at this moment."""
        self._held = [held for held in self._held if held[0] > now_s]
        return self.all - sum(cores for _, cores in self._held)

    def hold(self, cores: int, now_s: float, until_s: float) -> None:
        """Take so many until then; the caller has asked whether they are free."""
        busy = self.all - self.free(now_s) + cores
        assert busy <= self.all, f"{busy} cores are held of {self.all}"
        self.most_busy = max(self.most_busy, busy)
        self._held.append((until_s, cores))
