"""What tests over HTTP share: a status, snapshots, and a function that serves both."""

import pytest

from tests.service.web import busy_status, servers, two_snapshots


@pytest.fixture
def status():
    return busy_status()


@pytest.fixture
def snapshots(tmp_path):
    return two_snapshots(tmp_path / "snapshots")


@pytest.fixture
def serve(status, snapshots):
    with servers(status, snapshots) as start:
        yield start
