"""Three sites at work, and their first round; a scratch folder for ledgers."""

import pytest

from tests.privacy.ledger_cases import folder
from tests.sites.protocol import Sites

__all__ = ["folder"]


@pytest.fixture(scope="module")
def at_work(tmp_path_factory):
    with Sites.of(3, tmp_path_factory.mktemp("s"), weights=[0.2, 0.3, 0.5]) as sites:
        yield sites


@pytest.fixture
def this(at_work):
    return at_work.first
