"""Plans: which engine on which GPUs, how many, and with which flags, serves a traffic within an SLO most cheaply."""

from __future__ import annotations

from simlora.planning.planned import Plan
from simlora.planning.search import plan

__all__ = ["Plan", "plan"]
