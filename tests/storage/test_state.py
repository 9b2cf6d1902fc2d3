"""Raw state on disk: it continues bit for bit, nobody else reads it, and nothing uses it twice."""

import os
import stat
from contextlib import ExitStack

import numpy as np
import pytest

import streamlda
from streamlda.container import read_arrays, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError, ModelFileError, NewerFormatError, OlderFormatError
from streamlda.guarantee.noise import SeededNoise
from streamlda.model.model_file import STATE_FORMAT
from streamlda.privacy.clipping import ClipBounds
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import STATE_VERSION, load_state
from tests.engine.kinds import save_state

ROWS = 2000
USERS = [f"user{i % 300}" for i in range(ROWS)]
BASE = {"n_components": 3, "n_features": 40, "epsilon": 10.0, "delta": 1e-4}
BASE |= {"documents_per_snapshot": 1000}
KINDS = {
    "window": {},
    "fixed": {"clipping": ClipBounds(0.5, 0.2, 2.0, "fixed")},
    "prefix": {"mode": "prefix", "snapshots": 2},
    "user": {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 2},
}


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, 40, seed=4, topic_concentration=0.1).documents(ROWS)


def read_rows(learner, documents, start, stop):
    """Give rows to a learner, and make what is due; return the topics of its snapshots."""
    found = []
    while start < stop and learner.due is not None:
        start += learner.add(documents.rows(start, stop), USERS[start:stop])
        model = learner.release() if learner.due == 0 else None
        found += [] if model is None else [model.components]
    return found


class Run:
    """A private run with a ledger of its own; `load` is what a restarted process does."""

    def __init__(self, folder, documents, **changes):
        self.settings = PrivateSettings(**{**BASE, **changes})
        self.noise, self.documents = SeededNoise(3), documents
        self.path, self.ledger = folder / "ledger", None
        self.learner = self._learner(self.noise, self.settings)

    def _learner(self, noise, settings):
        self.close()
        self.ledger = open_ledger(self.path, self.settings)
        return PrivateLearner(settings, ReleaseManager(noise, self.ledger), vocabulary="public")

    def read(self, start, stop):
        return read_rows(self.learner, self.documents, start, stop)

    def close(self):
        if self.ledger is not None:
            self.ledger.close()

    def fresh(self, settings=None):
        """Return a new learner; what it draws to begin with does not move the run's noise."""
        learner = self._learner(SeededNoise(99), settings or self.settings)
        learner.releaser.noise = self.noise
        return learner

    def load(self, path):
        self.learner = load_state(path, self.fresh())


@pytest.fixture
def start(tmp_path, documents):
    with ExitStack() as opened:

        def start(**changes):
            run = Run(tmp_path, documents, **changes)
            opened.callback(run.close)
            return run

        yield start


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def saved(start, path):
    run = start()
    run.read(0, 500)
    save_state(path, run.learner)
    return run


# In the stages norms, pairs, triple norms, triples; and in the second window or round.
SLOTS = [("window", at) for at in (7, 500, 870, 905)]
SLOTS += [(kind, 1300) for kind in KINDS] + [("user", 450)]


@pytest.mark.parametrize(("kind", "at"), SLOTS)
def test_resume_equals_a_run_that_was_not_interrupted(start, path, documents, kind, at):
    # Both end a group here, as a save does; one of them is then restarted.
    broken = start(**KINDS[kind])
    releaser = ReleaseManager(SeededNoise(3))
    straight = PrivateLearner(broken.settings, releaser, vocabulary="public")
    topics = read_rows(straight, documents, 0, at)
    straight.state()
    topics += read_rows(straight, documents, at, ROWS)
    topics_again = broken.read(0, at)
    save_state(path, broken.learner)
    broken.load(path)
    topics_again += broken.read(at, ROWS)
    arrays, values = straight.state()
    again, values_again = broken.learner.state()
    assert values == values_again
    # Tables of users have a key of their own in each run.
    assert arrays.keys() == again.keys()
    for name in arrays.keys() - {"users/key", "users/digests"}:
        np.testing.assert_array_equal(arrays[name], again[name], err_msg=name)
    assert len(topics) == 2
    np.testing.assert_array_equal(topics, topics_again)


def test_the_last_snapshot_and_why_there_was_none_come_back(start, path):
    run = start(snapshots=1)
    run.read(0, 1500)
    wanted = run.learner.snapshot()
    run.learner.lost.append("the reason")
    save_state(path, run.learner)
    run.load(path)
    found = run.learner.snapshot()
    np.testing.assert_array_equal(found.components, wanted.components)
    assert (found.diagnostics, found.settings) == (wanted.diagnostics, wanted.settings)
    assert found.privacy == wanted.privacy
    assert run.learner.lost == ["the reason"]
    assert (run.learner.due, run.learner.documents_seen) == (None, 1000)


def test_only_the_owner_reads_it_whatever_umask_and_file_say_and_it_is_no_model(path, documents):
    engine = Engine(EngineSettings(n_components=3, n_features=40))
    engine.add(documents.rows(0, 50))
    path.touch()
    path.chmod(0o666)
    old = os.umask(0)
    try:
        save_state(path, engine)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ModelFileError, match="another kind, got format='streamlda-state'"):
        streamlda.load(path)


def stage(**changes):
    return lambda arrays, metadata: metadata["state"]["stage"].update(changes)


@pytest.mark.parametrize(
    ("change", "error", "rule"),
    [
        (lambda a, m: a.pop("learner.sums/pair"), InvalidSettingError, "is not what state"),
        (stage(places=10_000), InvalidSettingError, "slots=10000"),
        (lambda a, m: m["state"].pop("stage"), ModelFileError, "no valid state.*KeyError"),
    ],
    ids=["no sums", "past its end", "no stage"],
)
def test_a_made_up_state_is_refused(saved, path, change, error, rule):
    file = read_arrays(path, STATE_FORMAT, STATE_VERSION)
    change(file.arrays, file.metadata)
    cases = [
        (STATE_VERSION, error, rule),
        (STATE_VERSION + 1, NewerFormatError, "format_version="),
        (STATE_VERSION - 1, OlderFormatError, "continue with the version"),
    ]
    for version, wanted, match in cases:
        write_arrays(path, STATE_FORMAT, version, file.arrays, file.metadata)
        with pytest.raises(wanted, match=match):
            saved.load(path)
    assert saved.ledger.generation == 1


def test_other_settings_and_another_beginning_are_refused(saved, path, documents):
    for changes, shown in [
        ({"seed": 1}, r"seed=1 \(saved: 0\)"),
        ({"alpha_0": None}, r"alpha_0=None \(saved: 1.0\)"),
        ({"clipping": "worst-case"}, r"clipping='worst-case' \(saved: 'quantile'\)"),
    ]:
        other = saved.fresh(PrivateSettings(**{**BASE, **changes}))
        with pytest.raises(InvalidSettingError, match=rf"other settings.*{shown}.*use"):
            load_state(path, other)
    learner = saved.fresh()
    elsewhere = PrivateLearner(
        saved.settings, learner.releaser, vocabulary="hashed", first_slot=1000
    )
    with pytest.raises(InvalidSettingError, match=r"first_place=1000 .*vocabulary='hashed'"):
        load_state(path, elsewhere)
    with pytest.raises(InvalidSettingError, match="private=True learner=False"):
        load_state(path)
    alone = PrivateLearner(saved.settings, ReleaseManager(SeededNoise(1)), vocabulary="public")
    with pytest.raises(InvalidSettingError, match=r"has no ledger.*got ledger=None"):
        save_state(path, alone)
    save_state(path, Engine(EngineSettings(n_components=3, n_features=40)))
    with pytest.raises(InvalidSettingError, match="private=False learner=True"):
        saved.load(path)
