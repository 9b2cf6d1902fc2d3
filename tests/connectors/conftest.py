"""Fixtures of the tests of files that are followed."""

import json

import pytest

from streamlda_connectors import follow as source
from streamlda_connectors.follow import FollowSource
from tests.connectors.logs import Log


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "app.log")


@pytest.fixture
def follow(monkeypatch):
    """Open sources of text, closed at the end, of which every poll scans the files.

    So a poll without a timeout sees all there is.
    """
    monkeypatch.setattr(source, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(source, "SCAN_SHARE", 1)
    opened = []

    def follow(paths, position=None, **options):
        opened.append(FollowSource(paths, **{"format": "text", **options}))
        if position is not None:
            opened[-1].seek(json.loads(json.dumps(dict(position))))
        return opened[-1]

    yield follow
    for each in opened:
        each.close()
