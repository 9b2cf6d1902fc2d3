"""Every test of this folder is marked `papers`: `make test` leaves them to `make test-all`."""

from pathlib import Path

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker("papers")
