"""Private runs that are killed: scenes of a `tests.crashes.CrashProcess`.

A worker reads a stream, pays, draws, stores and publishes as a real run does. It writes down every
draw of noise, on the disk, before it is used. After each crash must hold: every draw was paid for,
no slot was in two draws, no block was drawn twice, the spend is that of the slots, and what was
published is whole and never changes.
"""

import hashlib
from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from streamlda.container import read_arrays
from streamlda.documents import DocumentBatch
from streamlda.errors import LedgerError
from streamlda.guarantee.noise import SecureNoise
from streamlda.kernels import load_kernels
from streamlda.learner import feed
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.costs import cost
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.ledger.terms import round_up
from streamlda.private.budget import ledger_terms
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION, ReleaseManager
from streamlda.private.settings import PrivateSettings
from tests.crashes import die_at, fork, kill_at_steps, serve, wait
from tests.privacy import ledger_crash
from tests.privacy.ledger_crash import published, read_draws, write_draw

SETTINGS = PrivateSettings(
    n_components=2,
    n_features=6,
    epsilon=8.0,
    delta=1e-5,
    documents_per_snapshot=100,
    clipping=ClipBounds(0.5, 0.3, 1.0, "fixed"),
)
PRICE = Fraction(cost(SETTINGS.event).mu_squared)
WINDOW = DocumentBatch.from_matrix(np.random.default_rng(1).poisson(2.0, (100, 6)))

#: Blocks of the two stages, and so draws of each.
DRAWS = {"pairs": 4, "triples": 4}


class LoggedNoise(SecureNoise):
    """Writes down each draw, with the release that it is for, before it hands it out."""

    __slots__ = ("_folder", "_ledger", "_on_step")

    def __init__(self, folder, ledger, on_step):
        super().__init__()
        self._folder, self._ledger, self._on_step = folder, ledger, on_step

    def discrete_gaussian(self, sigma, shape=()):
        drawn = super().discrete_gaussian(sigma, shape)
        self._on_step("drawn")
        intent = self._ledger.last_release
        slots = intent.cohort.documents[0]
        digest = hashlib.blake2b(drawn.tobytes(), digest_size=16).hexdigest()
        write_draw(self._folder, intent.number, slots.start, slots.stop, digest)
        self._on_step("logged")
        return drawn


def work(folder, windows, on_step=None):
    """End what a crash cut short, try to release old slots again, then read on."""
    step = on_step or (lambda name: None)
    with Ledger.open(
        folder / "ledger", ledger_terms(SETTINGS), create=True, on_step=on_step
    ) as ledger:
        ledger.recover()
        releaser = ReleaseManager(LoggedNoise(folder, ledger, step), ledger)
        first = 0
        if ledger.last_release is not None:
            first = ledger.last_release.cohort.documents[0].stop
            with pytest.raises(LedgerError, match="two releases"):
                feed(learner_of(releaser, 0), WINDOW)
        learner = learner_of(releaser, first)
        for _ in range(windows):
            feed(learner, WINDOW)


def learner_of(releaser, first):
    return PrivateLearner(SETTINGS, releaser, vocabulary="public", first_slot=first)


def verify(folder, *, recover=False):
    """Assert all that must hold after a crash, and return what became of the last release."""
    lines = read_draws(folder)
    if not (folder / "ledger").exists():
        assert not lines
        return "none"
    with Ledger.open(folder / "ledger", ledger_terms(SETTINGS)) as ledger:
        if recover:
            ledger.recover()
        report, spent = ledger.report(), ledger.loss.mu_squared
    shots = {shot["intent"]: shot for shot in report["snapshots"]}
    assert len({digest for *_, digest in lines}) == len(lines)
    for number, count in Counter(int(line[0]) for line in lines).items():
        assert count <= DRAWS[shots[number]["description"]]
    released = sorted({(int(start), int(stop), int(n)) for n, start, stop, _ in lines})
    for start, stop, number in released:
        assert shots[number]["documents"] == [["stream", start, stop]]
    for one, other in pairwise(released):
        assert one[1] <= other[0], "fresh noise was drawn for the same slots"
    assert spent == Fraction(round_up(PRICE if shots else Fraction(0)))
    for number, shot in shots.items():
        found = list((folder / "ledger.releases").glob(f"{number:06d}-*.safetensors"))
        if shot["state"] == "committed" or found:
            (path,) = found
            whole = read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION)
            first, last = whole.metadata["first"], whole.metadata["last"]
            assert shot["documents"] == [["stream", first, last + 1]]
            assert len(whole.arrays) == DRAWS[whole.metadata["stage"]]
            assert whole.metadata["secure"] is True
            content = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
            assert content == shot["digest"]
    return str(shots[max(shots)]["state"]) if shots else "none"


def every_step(scratch, stride):
    """Kill at every step of a window of two releases, or at every second ...; then continue."""
    outcomes = Counter()

    def kill(step):
        folder = scratch / f"step-{step}"
        folder.mkdir()
        return wait(fork(lambda: work(folder, 1, die_at(step))))

    for step, _ in kill_at_steps(kill, stride=stride):
        folder = scratch / f"step-{step}"
        outcomes[f"killed {verify(folder)}"] += 1
        before = published(folder)
        # Every fourth reads a window more; the others recover and try the old slots.
        more = int(outcomes["steps"] % 4 == 0)
        assert wait(fork(lambda f=folder, n=more: work(f, n))) == 0
        verify(folder)
        assert before.items() <= published(folder).items()
        outcomes["steps"] += 1
    return outcomes


if __name__ == "__main__":
    load_kernels()
    any_moment = partial(ledger_crash.any_moment, work=work, verify=verify)
    serve({"every-step": every_step, "any-moment": any_moment})
