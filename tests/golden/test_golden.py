"""Every system, on three workloads, returns the same bytes as when digests.json was written."""

import pytest

from tests.golden.cases import cases
from tests.golden.digest import computed, read
from tests.golden.hashing import differing

GOLDEN = read()
CASES = cases()


def test_every_case_has_digests_and_every_digest_a_case():
    assert {case.name for case in CASES} == set(GOLDEN), (
        "write digests.json anew: python -m tests.golden.digest"
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_the_same_to_the_byte(case):
    tables = differing(GOLDEN[case.name]["digests"], computed(case.overrides)["digests"])
    assert not tables, (
        f"{case.name} differs in {', '.join(tables)}; rerun: simlora {' '.join(case.overrides)}"
    )
