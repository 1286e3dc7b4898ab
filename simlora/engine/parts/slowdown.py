"""A replica that computes more slowly for a while: a straggler."""

from __future__ import annotations

from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import Pass, WrappingRunner
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch


class SlowRunner(WrappingRunner):
    """Takes `slowdown` times as long as `runner` for the iterations launched from now on."""

    def prefill_s(self, work: Pass) -> float:
        return self._runner.prefill_s(work) * self.slowdown

    def priced_s(self, work: Pass) -> float:
        return self._runner.priced_s(work) * self.slowdown

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        window = self._runner.decode(start_s, batch, host_s, adapters)
        return DecodeWindow(start_s, window.base_s * self.slowdown, window.slope_s * self.slowdown)


class PaceChange(Part):
    """Ends the decode window at the next boundary after something else has changed how long its steps take."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._ends = False

    def change(self, by: int = -1) -> None:
        """The steps from the next boundary on take other times, because of a boundary of replica `by`."""
        self._ends |= self._replica.interrupt(by)

    def at_boundary(self, now_s: float) -> None:
        if self._ends:
            self._ends = False
            self._replica.table.end_window()


class Slowdown(PaceChange):
    """Slows a replica down, and brings it back."""

    def __init__(self, replica: Replica, runner: SlowRunner) -> None:
        super().__init__(replica)
        self._runner = runner

    def set(self, factor: float) -> None:
        """From the next step on everything takes `factor` times as long."""
        self._runner.slowdown = factor
        self.change()
