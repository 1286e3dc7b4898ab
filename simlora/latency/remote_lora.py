"""LoRA that other GPUs compute: what it takes to send them activations, and how much of it hides."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.hardware.link import Link
from simlora.hardware.model import ATTENTION, MLP, ModelShape

INPUTS = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))
"""Projections of a layer by the activations that they read: those of a tuple are sent for once."""


class RemoteLora:
    """Activations go to a LoRA server and come back, projection by projection of every layer.

    Projections that read the same activations share a round: their input goes there, and their outputs come back. A
    round takes the latency of the link twice and the bytes of both ways, over the links of all `tp` GPUs of a replica.
    A token of a mixture of experts is sent once for each of its experts. The network cards of the server receive and
    send at the same time, and all replicas share them.
    The outputs are added to those of the base model's own product, which the GPU computes meanwhile: rounds and kernels
    of the server hide behind as much of an iteration, without its attention, as the adapted projections have of the
    weights that it reads.
    Source: InfiniLoRA (arXiv 2604.07173), a LoRA server apart from the GPUs of the base model, of which this is the
    principle; its kernels, its GPU-initiated communication and its provisioning are not modelled.
    """

    __slots__ = ("_bytes_per_s", "_latency_s", "_server_token_s", "_token_bytes", "hidden_share")

    def __init__(self, model: ModelShape, target_modules: Sequence[str], tp: int, link: Link) -> None:
        rounds, there, back, adapted = 0, 0, 0, 0
        for together in INPUTS:
            own = [module for module in together if module in target_modules]
            if not own:
                continue
            rounds += 1
            copies = model.experts_per_token if own[0] in MLP else 1
            there += copies * model.module_shape(own[0])[0]
            for module in own:
                rows, columns = model.module_shape(module)
                back += copies * columns
                adapted += rows * columns * model.copies(module)
        self._latency_s = 2 * rounds * model.layers * link.latency_s
        element_bytes = model.layers * model.dtype_bytes
        self._token_bytes = (there + back) * element_bytes
        self._server_token_s = max(there, back) * element_bytes / link.bytes_per_s
        self._bytes_per_s = link.bytes_per_s * tp
        layer = sum(
            rows * columns * model.copies(module)
            for module in (*ATTENTION, *MLP)
            for rows, columns in [model.module_shape(module)]
        )
        self.hidden_share = model.layers * adapted / (model.layers * layer + model.vocab * model.hidden)

    def exchange_s(self, tokens: int) -> float:
        """Return the seconds in which activations of so many adapted tokens go there and back."""
        return self._latency_s * (tokens > 0) + tokens * self._token_bytes / self._bytes_per_s

    def server_s(self, tokens: int) -> float:
        """Return the seconds that one of the server's network cards receives or sends for so many adapted tokens.

        That is the longer of the two, as it does both at the same time.
        """
        return tokens * self._server_token_s
