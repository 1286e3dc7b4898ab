"""Hypothesis draws the same examples every time; SIMLORA_HYPOTHESIS=thorough draws many more, and new ones."""

import os

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "usual", max_examples=150, derandomize=True, deadline=None, suppress_health_check=SLOW
)
settings.register_profile(
    "thorough", max_examples=3000, deadline=None, suppress_health_check=SLOW, print_blob=True
)
settings.load_profile(os.environ.get("SIMLORA_HYPOTHESIS", "usual"))
