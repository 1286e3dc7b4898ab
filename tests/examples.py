"""How many examples a property test draws."""

from hypothesis import settings


def share(of_usual: float) -> settings:
    """A share of the profile's examples: for one of a family of tests, or for one that needs more."""
    return settings(max_examples=max(round(settings().max_examples * of_usual), 1))
