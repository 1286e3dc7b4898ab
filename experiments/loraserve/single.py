"""What one request at a time takes, by a calibration."""

from __future__ import annotations

from experiments.profiles.scaling import model
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Mbgmv
from simlora.latency.transfer import AdapterLoad


class Single:
    """One request at a time, by a calibration; seconds, collectives in all of them."""

    def __init__(self, calibration: Calibration) -> None:
        """Take a calibration of ours."""
        self.model, self.tp = model(calibration.model), calibration.tp
        whole = folded(calibration, self.model)
        self.iteration, self.kernel, self.load = IterationModel(whole), Mbgmv(whole), AdapterLoad(whole)
        self.front_end_s = calibration.coefficients.get("front_end.per_request_s", 0.0)

    def load_s(self, rank: int) -> float:
        """Return an adapter's load; S-LoRA loads it for every request that comes alone."""
        return self.load.load_s(self.model.adapter_bytes(rank) // self.tp)

    def pass_s(self, prompt: int, rank: int) -> float:
        """Return the prefill of a prompt."""
        lora_s = self.kernel.prefill_s(LoraWork(prompt, prompt * rank, rank, 1))
        return self.iteration.prefill_s(prompt, prompt**2) + lora_s

    def ttft_s(self, prompt: int, rank: int) -> float:
        """Return the time to first token."""
        return self.front_end_s + self.load_s(rank) + self.pass_s(prompt, rank)

    def without_tokens_s(self, prompt: int, rank: int) -> float:
        """Return of it load, launches and attention's square: not what tokens take, nor their ranks."""
        return self.load_s(rank) + self.iteration.prefill_s(0, prompt**2) + self.kernel.prefill_0

    def step_s(self, batch: int, context_tokens: int, rank: int) -> float:
        """Return a decode step of requests of one rank, their contexts summed."""
        lora_s = self.kernel.decode_s(LoraWork(batch, batch * rank, rank, batch))
        return self.iteration.decode_s(batch, context_tokens) + lora_s
