"""LoRA that other GPUs compute: what it takes to send them activations, and how much of it hides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simlora.core.total import total
from simlora.hardware.link import Link
from simlora.hardware.model import ATTENTION, MLP, ModelShape

INPUTS = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))
"""Projections of a layer by the activations that they read: those of a tuple are sent for once."""


class RemoteLora:
    """Activations go to a LoRA server and come back, projection by projection of every layer.

    Projections that read the same activations share a round: their input goes there, and their outputs come back. A
    round takes the latency of the link twice and the bytes of both ways, over `links` of them at once: one for each GPU
    of the replica or of the server, whichever are fewer.
    A token of a mixture of experts is sent once for each of its experts. The network cards of the server receive and
    send at the same time, and all replicas share them.
    The outputs are added to those of the base model's own product, which the GPU computes meanwhile: rounds and kernels
    of the server hide behind as much of an iteration, without its attention, as the adapted projections have of the
    weights that it reads.
    Source: InfiniLoRA (arXiv 2604.07173), a LoRA server apart from the GPUs of the base model, of which this is the
    principle; its kernels, its GPU-initiated communication and its provisioning are not modelled.
    """

    __slots__ = ("_back_s", "_bytes_per_s", "_latency_s", "_there_s", "_token_bytes", "hidden_share")

    def __init__(self, model: ModelShape, target_modules: Sequence[str], links: int, link: Link) -> None:
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
        self._there_s, self._back_s = (
            elements * element_bytes / link.bytes_per_s for elements in (there, back)
        )
        self._bytes_per_s = link.bytes_per_s * links
        layer = sum(
            rows * columns * model.copies(module)
            for module in (*ATTENTION, *MLP)
            for rows, columns in [model.module_shape(module)]
        )
        self.hidden_share = model.layers * adapted / (model.layers * layer + model.vocab * model.hidden)

    def exchange_s(self, tokens: int) -> float:
        """Return the seconds in which activations of so many adapted tokens go there and back."""
        return self._latency_s * (tokens > 0) + tokens * self._token_bytes / self._bytes_per_s

    def cards_s(self, tokens: int) -> tuple[float, float]:
        """Return the seconds that one network card of the server receives, and sends, for so many adapted tokens."""
        return tokens * self._there_s, tokens * self._back_s


class RemoteIteration(NamedTuple):
    """An iteration of a replica whose LoRA a server computes.

    It takes `own_s` without LoRA, and `remote_s` for the exchange and the server's work where no other replica is in
    the way, of which `hidden_s` hide. `stations_s` are the parts of `remote_s` that replicas share: of the server's
    GPUs, of its cards that receive, and of its cards that send.
    """

    own_s: float
    hidden_s: float
    remote_s: float
    stations_s: tuple[float, float, float]


AGREES = 1e-12
"""Relative change of an iteration's seconds below which they have converged."""
MOST_ROUNDS = 1000


def beside_s(iteration: RemoteIteration, others: Sequence[RemoteIteration]) -> float:
    """Return the seconds of an iteration while each of the other replicas repeats its own.

    Replicas ask the server projection by projection. One that asks shares each station with those that are there, which
    are as many as on average without it.
    Source: mean value analysis of a closed queueing network with a class for each replica, one request of each, whose
    stations share their time (Lazowska et al., Quantitative System Performance, 1984, ch. 7). Exact with two replicas;
    the numbers of more than one other are Bard's approximation.
    """
    return _seconds(iteration, *_there(others))


def _seconds(one: RemoteIteration, gpus: float, receiving: float, sending: float) -> float:
    """Return the seconds of an iteration that finds so many others at each station."""
    gpu_s, receive_s, send_s = one.stations_s
    waits_s = gpu_s * gpus + receive_s * receiving + send_s * sending
    return one.own_s + max(one.remote_s + waits_s - one.hidden_s, 0.0)


def _there(together: Sequence[RemoteIteration]) -> tuple[float, float, float]:
    """Return how many replicas are at each station on average: each for the share of its iteration that it is there.

    Bard's approximation: a replica finds as many others there as on average, though it has held them up itself.
    """
    count = len(together)
    took_s, gpus, receiving, sending = [0.0] * count, [0.0] * count, [0.0] * count, [0.0] * count
    for _ in range(MOST_ROUNDS):
        converged = True
        for i in range(count):
            one = together[i]
            found = total(gpus) - gpus[i], total(receiving) - receiving[i], total(sending) - sending[i]
            now_s = _seconds(one, *found)
            if abs(now_s - took_s[i]) > AGREES * now_s:
                converged = False
            took_s[i] = now_s
            if now_s > 0.0:
                gpu_s, receive_s, send_s = one.stations_s
                gpus[i] = gpu_s * (1.0 + found[0]) / now_s
                receiving[i] = receive_s * (1.0 + found[1]) / now_s
                sending[i] = send_s * (1.0 + found[2]) / now_s
        if converged:
            break
    return total(gpus), total(receiving), total(sending)
