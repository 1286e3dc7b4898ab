"""Cases that several tests start from."""

import pytest

from tests.engine.cases import Case, Row


@pytest.fixture
def burst() -> Case:
    """Ten requests at once for three adapters, with long answers of different lengths."""
    return Case(rows=tuple(Row(0.0, i % 3, 10, 50 + i, 60) for i in range(10)), max_wait_tokens=0)
