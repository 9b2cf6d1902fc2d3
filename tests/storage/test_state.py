"""Raw state on disk: it goes on bit for bit, nobody else reads it, and nothing uses it twice."""

import os
import shutil
import stat

import numpy as np
import pytest
from click.testing import CliRunner

import streamlda
from streamlda.cli import commands
from streamlda.container import read_arrays, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError, LedgerError, ModelFileError, NewerFormatError
from streamlda.model.topic_model import STATE_FORMAT
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.noise import SeededNoise
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.storage.state import load_state, save_state

ROWS = 2000
USERS = [f"user{i % 300}" for i in range(ROWS)]
BASE = {"n_components": 3, "n_features": 40, "epsilon": 10.0, "delta": 1e-4}
BASE |= {"documents_per_snapshot": 1000}
KINDS = {
    "window": {},
    "fixed": {"clipping": ClipBounds(0.5, 0.2, 2.0, "fixed")},
    "prefix": {"mode": "prefix", "snapshots": 2},
    "user": {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 2},
    "noise-in-state": {"noise_in_state": True},
}


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, 40, seed=4, topic_concentration=0.1).documents(ROWS)


def read(learner, documents, start, stop):
    """Give rows to a learner, and make what is due; return the topics of its snapshots."""
    found = []
    while start < stop and learner.due is not None:
        start += learner.add(documents.rows(start, stop), USERS[start:stop])
        model = learner.release() if learner.due == 0 else None
        found += [] if model is None else [model.components]
    return found


class Run:
    """A private run with a ledger of its own; `go_on` is what a restarted process does."""

    def __init__(self, folder, kind, **changes):
        self.settings = PrivateSettings(**{**BASE, **KINDS[kind], **changes})
        self.noise = SeededNoise(3)
        self.path = folder / "ledger"
        folder.mkdir(exist_ok=True)
        self.learner = self._learner(self.noise)

    def _learner(self, noise, settings=None):
        self.ledger = open_ledger(self.path, self.settings)
        releaser = ReleaseManager(noise, self.ledger)
        return PrivateLearner(settings or self.settings, releaser, vocabulary="public")

    def read(self, documents, start, stop):
        return read(self.learner, documents, start, stop)

    def save(self, path):
        save_state(path, self.learner)
        self.ledger.close()

    def fresh(self, settings=None):
        """Return a new learner; what it draws to begin with does not move the run's noise."""
        learner = self._learner(SeededNoise(99), settings)
        learner.releaser.noise = self.noise
        return learner

    def load(self, path):
        self.learner = load_state(path, self.fresh())


# In the stages norms, pairs, triple norms, triples; and in the second window or round.
SLOTS = [("window", at) for at in (7, 500, 870, 905)]
SLOTS += [(kind, at) for kind in KINDS for at in (450, 1300)]


@pytest.mark.parametrize(("kind", "at"), SLOTS)
def test_resume_equals_a_run_that_was_not_interrupted(tmp_path, documents, kind, at):
    # Both end a group here, as a save does; one of them is then restarted.
    broken = Run(tmp_path, kind)
    releaser = ReleaseManager(SeededNoise(3))
    straight = PrivateLearner(broken.settings, releaser, vocabulary="public")
    topics = read(straight, documents, 0, at)
    straight.engine.state()
    topics += read(straight, documents, at, ROWS)
    topics_again = broken.read(documents, 0, at)
    broken.save(tmp_path / "state")
    broken.load(tmp_path / "state")
    topics_again += broken.read(documents, at, ROWS)
    broken.ledger.close()
    arrays, values = straight.engine.state()
    again, values_again = broken.learner.engine.state()
    assert values == values_again
    # Tables of users have a key of their own in each run.
    assert arrays.keys() == again.keys()
    for name in arrays.keys() - {"users/key", "users/digests"}:
        np.testing.assert_array_equal(arrays[name], again[name], err_msg=name)
    assert len(topics) == 2
    for one, other in zip(topics, topics_again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_saving_moves_results_by_less_than_the_noise_can_show(tmp_path, documents):
    saved, never = Run(tmp_path / "a", "window"), Run(tmp_path / "b", "window")
    for at in (0, 100, 200, 300):
        saved.read(documents, at, at + 100)
        save_state(tmp_path / "state", saved.learner)
    (first,) = saved.read(documents, 400, 1000)
    (second,) = never.read(documents, 0, 1000)
    np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9)
    saved.ledger.close()
    never.ledger.close()


def test_the_last_snapshot_and_why_there_was_none_come_back(tmp_path, documents):
    run = Run(tmp_path / "a", "window")
    run.read(documents, 0, 1200)
    wanted = run.learner.snapshot()
    run.learner.lost.append("the reason")
    run.save(tmp_path / "state")
    run.load(tmp_path / "state")
    found = run.learner.snapshot()
    np.testing.assert_array_equal(found.components, wanted.components)
    assert (found.diagnostics, found.settings) == (wanted.diagnostics, wanted.settings)
    assert run.learner.statement(run.learner.engine.snapshot) == found.privacy
    assert run.learner.lost == ["the reason"]
    run.ledger.close()


def test_a_non_private_engine_goes_on_from_its_file(tmp_path, documents):
    settings = EngineSettings(n_components=3, n_features=40, warmup_documents=300)
    straight, saved = Engine(settings), Engine(settings)
    for engine in (straight, saved):
        engine.add(documents.rows(0, 1100))
    save_state(tmp_path / "state", saved)
    resumed = load_state(tmp_path / "state")
    for engine in (straight, resumed):
        engine.add(documents.rows(1100, ROWS))
    np.testing.assert_array_equal(straight.snapshot().components, resumed.snapshot().components)
    with pytest.raises(InvalidSettingError, match="private=False learner=True"):
        load_state(tmp_path / "state", Run(tmp_path / "a", "window").learner)


def test_only_the_owner_can_read_it_whatever_umask_and_file_say(tmp_path, documents):
    engine = Engine(EngineSettings(n_components=3, n_features=40))
    engine.add(documents.rows(0, 50))
    path = tmp_path / "state"
    path.touch()
    path.chmod(0o666)
    old = os.umask(0)
    try:
        save_state(path, engine)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        save_state(tmp_path / "new", engine)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "state"]


def test_it_is_refused_as_a_model_and_called_raw(tmp_path, documents):
    run = Run(tmp_path / "a", "window")
    run.read(documents, 0, 500)
    run.save(tmp_path / "state")
    with pytest.raises(ModelFileError, match="raw data, the state of a running engine"):
        streamlda.load(tmp_path / "state")
    (tmp_path / "texts").write_text("a text\n", "ascii")
    for command in (["topics"], ["infer"]):
        after = [] if command == ["topics"] else [str(tmp_path / "texts")]
        result = CliRunner().invoke(commands, [*command, str(tmp_path / "state"), *after])
        assert result.exit_code != 0
        assert "raw data" in result.stderr


@pytest.fixture
def saved(tmp_path, documents):
    run = Run(tmp_path / "run", "window")
    run.read(documents, 0, 500)
    run.save(tmp_path / "state")
    return run, tmp_path / "state"


def rewritten(path, change=lambda arrays, metadata: None, version=1):
    """Change a state and give it a good checksum again."""
    file = read_arrays(path, STATE_FORMAT, 1)
    change(file.arrays, file.metadata)
    write_arrays(path, STATE_FORMAT, version, file.arrays, file.metadata)


def stage(**changes):
    return lambda arrays, metadata: metadata["state"]["stage"].update(changes)


NOT_SUMS = "saved sums must be whole numbers in the shapes"


@pytest.mark.parametrize(
    ("change", "error", "rule"),
    [
        (lambda a, m: a.pop("sums/pair"), InvalidSettingError, NOT_SUMS),
        (lambda a, m: a.update({"sums/first": np.ones(39)}), InvalidSettingError, NOT_SUMS),
        (stage(places=10_000), InvalidSettingError, "slots=10000"),
        (lambda a, m: m["state"].pop("stage"), ModelFileError, "hold a valid state.*KeyError"),
        (stage(name="quadruples"), ModelFileError, "must hold a valid state"),
    ],
    ids=["no sums", "other shape", "past its end", "no stage", "unknown stage"],
)
def test_a_made_up_state_is_refused(saved, change, error, rule):
    run, path = saved
    rewritten(path, change)
    with pytest.raises(error, match=rule):
        run.load(path)
    assert run.ledger.generation == 1
    run.ledger.close()
    rewritten(path, version=2)
    with pytest.raises(NewerFormatError, match="format_version=2"):
        run.load(path)
    run.ledger.close()


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"seed": 1}, r"seed=1 \(saved: 0\)"),
        ({"alpha_0": None}, r"alpha_0=None \(saved: 1.0\)"),
        ({"epsilon": 9.0}, r"epsilon=9.0 \(saved: 10.0\)"),
        ({"clipping": "worst-case"}, r"clipping='worst-case' \(saved: 'quantile'\)"),
    ],
)
def test_other_settings_are_refused(saved, changes, shown):
    run, path = saved
    other = PrivateSettings(**{**BASE, **changes})
    with pytest.raises(InvalidSettingError, match=rf"go on with the settings.*{shown}.*use those"):
        load_state(path, run.fresh(other))
    run.ledger.close()


def test_another_beginning_is_refused(saved, documents):
    run, path = saved
    learner = run.fresh()
    elsewhere = PrivateLearner(run.settings, learner.releaser, vocabulary="hashed", first_slot=1000)
    with pytest.raises(InvalidSettingError, match=r"first_place=1000 .*vocabulary='hashed'"):
        load_state(path, elsewhere)
    learner.add(documents.rows(0, 3))
    with pytest.raises(InvalidSettingError, match=r"before documents are read.*documents_seen=3"):
        load_state(path, learner)
    with pytest.raises(InvalidSettingError, match="private=True learner=False"):
        load_state(path)
    run.ledger.close()


def test_a_state_from_before_a_release_is_refused(saved, documents):
    run, path = saved
    run.load(path)
    run.read(documents, 500, 870)
    assert run.ledger.generation == 2
    run.ledger.close()
    with pytest.raises(LedgerError, match=r"from before a release.*epoch=1 generation=2"):
        run.load(path)
    run.ledger.close()


def test_a_state_goes_with_its_own_newest_ledger_only(saved, documents, tmp_path):
    run, path = saved
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run.load(path)
    run.read(documents, 500, 870)
    run.save(path)
    run.path = tmp_path / "copy" / "ledger"
    with pytest.raises(LedgerError, match=r"older than the state.*epoch=2 generation=1"):
        run.load(path)
    run.ledger.close()
    other = Run(tmp_path / "other", "window")
    with pytest.raises(LedgerError, match="with its own ledger"):
        load_state(path, other.learner)
    other.ledger.close()
    alone = PrivateLearner(run.settings, ReleaseManager(SeededNoise(1)), vocabulary="public")
    with pytest.raises(LedgerError, match=r"with its ledger, got ledger=None"):
        load_state(path, alone)
    with pytest.raises(InvalidSettingError, match=r"beside a ledger.*got ledger=None"):
        save_state(path, alone)


def test_a_finished_run_says_so(tmp_path, documents):
    run = Run(tmp_path / "a", "window", snapshots=1)
    run.read(documents, 0, 1500)
    assert run.learner.due is None
    run.save(tmp_path / "state")
    run.load(tmp_path / "state")
    assert run.learner.due is None
    assert run.learner.documents_seen == 1000
    run.ledger.close()
