"""Three sites at work, and their first round."""

import pytest

from streamlda.sites.rounds import Round
from tests.sites.protocol import Sites, config_of, keys_of


@pytest.fixture(scope="module")
def at_work(tmp_path_factory):
    keys = keys_of(3)
    with Sites(config_of(keys, weights=[0.2, 0.3, 0.5]), keys, tmp_path_factory.mktemp("s")) as s:
        yield s


@pytest.fixture
def this(at_work):
    return Round.first(at_work.config)
