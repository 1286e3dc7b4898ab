"""How replicas that prefill and replicas that decode work together."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.core.checks import choice, whole

WHOLE, BY_LAYER = KV_HANDOVERS = ("whole", "by_layer")


@dataclass(frozen=True, kw_only=True)
class PoolsConfig:
    """How KV goes from replicas that prefill to replicas that decode, and whether each does the other's work.

    By `kv_handover` KV goes whole, once the request is admitted where it decodes; or by layer, while the prompt is
    computed. `mixed_pool_tokens`: of prompts at each replica that prefills, beyond which replicas that decode prefill,
    too, as those that prefill decode when the others are full; None: each keeps to its pool.
    """

    kv_handover: str = WHOLE
    mixed_pool_tokens: int | None = None

    def __post_init__(self) -> None:
        choice("cluster.kv_handover", self.kv_handover, KV_HANDOVERS)
        if self.mixed_pool_tokens is not None:
            whole("cluster.mixed_pool_tokens", self.mixed_pool_tokens, "tokens", least=1)

    @property
    def by_layer(self) -> bool:
        """Whether KV goes layer by layer."""
        return self.kv_handover == BY_LAYER
