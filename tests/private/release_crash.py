"""Private runs that are killed: run by tests through `tests.privacy.ledger_cases.CrashProcess`.

This process forks one worker after the other, which reads a stream, pays, draws, stores and
publishes as a real run does, kills it, and looks at what is left. A worker writes down every draw
of noise, on the disk, before it is used. After each crash must hold: every draw was paid for, no
slot was in two draws, no block was drawn twice, the spend is that of the slots, and what was
published is whole and never changes.
"""

import hashlib
import os
import signal
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np

from streamlda.container import read_arrays
from streamlda.documents import DocumentBatch
from streamlda.errors import LedgerError
from streamlda.kernels import load_kernels
from streamlda.learner import feed
from streamlda.privacy.accounting import cost
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.ledger.terms import round_up
from streamlda.privacy.noise import SecureNoise
from streamlda.private.budget import ledger_terms
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION, ReleaseManager
from streamlda.private.settings import PrivateSettings
from tests.privacy.ledger_crash import die_at, fork, kill_after, serve, wait
from tests.private.audit import Recorder

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
        intent = self._ledger.last_intent
        assert intent is not None
        slots = intent.cohort.documents[0]
        digest = hashlib.blake2b(drawn.tobytes(), digest_size=16).hexdigest()
        with (self._folder / "draws").open("a") as draws:
            draws.write(f"{intent.number} {slots.start} {slots.stop} {digest}\n")
            draws.flush()
            os.fsync(draws.fileno())
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
        if ledger.last_intent is not None:
            first = ledger.last_intent.cohort.documents[0].stop
            learner_of(releaser, first=0, refused=True)
        learner = learner_of(releaser, first)
        for _ in range(windows):
            feed(learner, WINDOW)


def learner_of(releaser, first, *, refused=False):
    """Return a learner from a slot on; or see that it is refused its first release."""
    learner = PrivateLearner(SETTINGS, releaser, vocabulary="public", first_slot=first)
    if refused:
        try:
            feed(learner, WINDOW)
        except LedgerError:
            pass
        else:
            raise AssertionError("slots were in two releases")
    return learner


def verify(folder):
    """Assert all that must hold after a crash, and return what became of the last release."""
    text = (folder / "draws").read_text() if (folder / "draws").exists() else ""
    # Of a line cut short nothing was used yet.
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if not (folder / "ledger").exists():
        assert not lines
        return "none"
    with Ledger.open(folder / "ledger", ledger_terms(SETTINGS)) as ledger:
        report, spent = ledger.report(), Fraction(ledger.spent)
    shots = {shot["intent"]: shot for shot in report["snapshots"]}
    assert len({digest for *_, digest in lines}) == len(lines)
    for number, count in Counter(int(line[0]) for line in lines).items():
        assert count <= DRAWS[shots[number]["description"]]
    released = sorted({(int(start), int(stop), int(n)) for n, start, stop, _ in lines})
    for start, stop, number in released:
        assert shots[number]["cohort_id"] == f"stream:{start}-{stop}"
    for one, other in pairwise(released):
        assert one[1] <= other[0], "fresh noise was drawn for the same slots"
    assert spent == Fraction(round_up(PRICE if shots else Fraction(0)))
    for number, shot in shots.items():
        found = list((folder / "ledger.releases").glob(f"{number:06d}-*.safetensors"))
        if shot["state"] == "committed" or found:
            (path,) = found
            whole = read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION)
            first, last = whole.metadata["first"], whole.metadata["last"]
            assert shot["cohort_id"] == f"stream:{first}-{last + 1}"
            assert len(whole.arrays) == DRAWS[whole.metadata["stage"]]
            assert whole.metadata["secure"] is True
            content = hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()
            assert content == shot["digest"]
    return str(shots[max(shots)]["state"]) if shots else "none"


def published(folder):
    return {path.name: path.read_bytes() for path in folder.glob("ledger.releases/*.safetensors")}


def every_step(scratch, stride):
    """Kill at every step of a window of two releases, or at every second ...; then go on."""
    outcomes = Counter()
    status = -signal.SIGKILL
    while status == -signal.SIGKILL:
        folder = scratch / f"step-{outcomes['steps']}"
        folder.mkdir()
        hook = die_at(stride * outcomes["steps"])
        status = wait(fork(lambda f=folder, h=hook: work(f, 1, h)))
        outcomes[f"killed {verify(folder)}"] += 1
        before = published(folder)
        # Every fourth reads a window more; the others recover and try the old slots.
        more = int(outcomes["steps"] % 4 == 0)
        assert wait(fork(lambda f=folder, n=more: work(f, n))) == 0
        verify(folder)
        assert before.items() <= published(folder).items()
        outcomes["steps"] += 1
    assert status == 0
    return outcomes


def any_moment(scratch, kills, seed):
    """Kill at random moments of a worker's way; one ledger lives through twenty crashes."""
    rng = np.random.default_rng(seed)
    outcomes = Counter()
    folder, before = scratch, {}
    for i in range(kills):
        if i % 20 == 0:
            folder, before = scratch / f"any-{i}", {}
            folder.mkdir()
        kill_after(int(rng.integers(0, 90)), lambda on_step, f=folder: work(f, 1000, on_step))
        outcomes[f"killed {verify(folder)}"] += 1
        after = published(folder)
        assert before.items() <= after.items()
        before = after
    outcomes["artifacts"] = sum(1 for _ in scratch.glob("any-*/ledger.releases/*.safetensors"))
    return outcomes


def processes(scratch):
    """Release streams of blanks here and in two forks, with one source of noise."""
    noise, outcomes = SecureNoise(), Counter()

    def save():
        recorder = Recorder(noise)
        learner = PrivateLearner(SETTINGS, recorder, vocabulary="public")
        blanks = DocumentBatch.from_matrix(np.zeros((88, 6)))
        for _ in range(40):
            feed(learner, blanks)
        pairs = [arrays["pair"] for name, arrays, _ in recorder.released if name == "pairs"]
        np.save(scratch / f"{os.getpid()}.npy", np.hstack(pairs[:20]))

    for child in [fork(save), fork(save)]:
        outcomes[str(wait(child))] += 1
    save()
    return outcomes


if __name__ == "__main__":
    load_kernels()
    serve({"every-step": every_step, "any-moment": any_moment, "processes": processes})
