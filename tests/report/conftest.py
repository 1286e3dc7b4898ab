import pytest

from tests.report.make_results import make_requests, make_summary, make_timeline, write_results


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """The folder of a run of 1,000 requests on two replicas."""
    requests = make_requests(1_000)
    folder = tmp_path_factory.mktemp("run")
    return write_results(folder, requests, make_timeline(2, rows=200), make_summary(requests))
