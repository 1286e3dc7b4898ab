"""Hypothesis draws the same examples every time; SIMLORA_HYPOTHESIS=thorough many more, and new ones, few half."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "usual", max_examples=100, derandomize=True, deadline=None, suppress_health_check=SLOW
)
settings.register_profile("few", settings.get_profile("usual"), max_examples=50)
settings.register_profile(
    "thorough", max_examples=3000, deadline=None, suppress_health_check=SLOW, print_blob=True
)
settings.load_profile(os.environ.get("SIMLORA_HYPOTHESIS", "usual"))


@pytest.fixture(autouse=True, scope="session")
def own_cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests find is not kept beside what the user finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
