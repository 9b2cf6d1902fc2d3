"""Keys of noise that every run draws again, for tests in which noise decides what is seen."""

import random
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from streamlda.guarantee import noise


@contextmanager
def same_keys():
    """Give `SecureNoise` of this process the same keys in every run; all else of it is as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "secrets", SimpleNamespace(randbits=random.Random(1).getrandbits))
        yield


@pytest.fixture
def same_noise():
    with same_keys():
        yield


@pytest.fixture(autouse=True)
def fresh_account():
    """Forget the private fits of other tests, which took rows of the same fixtures."""
    module = sys.modules.get("streamlda.private.process_account")
    if module is not None:
        module.ACCOUNT = module.ProcessAccount()
