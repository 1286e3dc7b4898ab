"""Validation: what a server of the user's did with its requests, against a simulation of the same requests."""

from __future__ import annotations

from simlora.validation.replay import validate
from simlora.validation.validated import Validation

__all__ = ["Validation", "validate"]
