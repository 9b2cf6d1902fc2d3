"""Files that version 0.1.0 wrote are read, and what they began goes on as it would have then.

``tests/data/formats-0.1.tar.gz`` was written by commit 5d939e5: states in every phase of an engine
(stopped after some of 3000 planted documents), models, checkpoints of daemons, private states
with their ledgers, a projection and a round of two sites. ``expected.npz`` and ``expected.json``
hold what that commit made of them.
"""

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.errors import ModelFileError
from streamlda.learner import feed
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.noise import SecureNoise
from streamlda.private.budget import ledger_terms, within
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.run.opening import open_pipeline
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.storage.checkpoint import Checkpoints
from streamlda.storage.merge import merge_checkpoints
from streamlda.storage.projection import load_projection
from streamlda.storage.state import load_state
from streamlda.stream.source import RecordBatch

ARCHIVE = Path(__file__).parents[1] / "data" / "formats-0.1.tar.gz"
#: As far as the arithmetic of two processors may differ.
CLOSE = {"rtol": 1e-7, "atol": 1e-10}
STATES = [
    *("warmup", "sums", "refining-sums", "refining-annealing", "refining", "follows", "online"),
    *("simultaneous-forgets", "shared-map"),
]
SIZES = {"n_components": 3, "epsilon": 4.0, "delta": 1e-5}
PRIVATE = {
    "window": {},
    "users": {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 2},
    "prefix": {"mode": "prefix", "snapshots": 3},
    "noisy-power": {"solver": "noisy-power"},
    "refine": {"refinement_rounds": 2},
}


def copied(paths, folder):
    for path in paths:
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, folder / path.name)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    with tarfile.open(ARCHIVE) as archive:
        # Python before 3.11.4 has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "out"


@pytest.fixture(scope="module")
def texts(old):
    return [json.loads(line)["text"] for line in (old / "documents.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def expected(old):
    return json.loads((old / "expected.json").read_text()) | dict(np.load(old / "expected.npz"))


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, 40, seed=7, mean_length=20).documents(3000)


def check_topics(model, expected, name):
    """0.1.0 had other orders of topics, and its alpha did not follow a refinement."""
    wanted = {part: expected[f"{name}.{part}"] for part in ("components", "alpha", "background")}
    order = slice(None)
    if "refinement" in model.diagnostics:
        order = matched_l1_error(wanted["components"], model.components).permutation
        assert model.alpha.sum() == pytest.approx(wanted["alpha"].sum())
    else:
        np.testing.assert_allclose(model.alpha, wanted["alpha"], **CLOSE)
    np.testing.assert_allclose(model.components[order], wanted["components"], **CLOSE)
    np.testing.assert_allclose(model.background, wanted["background"], **CLOSE)


@pytest.mark.parametrize("name", STATES)
def test_engines_go_on(old, expected, documents, name):
    engine = load_state(old / f"state-{name}")
    at = engine.documents_seen + engine.documents_skipped
    if name == "refining-sums":
        # Topics of the documents kept are annealed as by now.
        fresh = Engine(engine.settings)
        fresh.add(documents.rows(0, at))
        for _ in range(2):
            one, other = engine.snapshot(), fresh.snapshot()
            for part in ("components", "background"):
                np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
            for learner in (engine, fresh):
                learner.add(documents.rows(at, 3000))
        return
    if name != "shared-map":
        assert at == expected[f"state-{name}"]["at"]
        check_topics(engine.snapshot(), expected, f"state-{name}.then")
    engine.add(documents.rows(at, 3000))
    check_topics(engine.snapshot(), expected, f"state-{name}.end")


@pytest.mark.parametrize("name", ["refined", "spectral", "hashed", "online", "ngrams"])
def test_models_are_read(old, texts, expected, name):
    model = load(old / f"model-{name}")
    check_topics(model, expected, f"model-{name}")
    found = [json.loads(line)["topics"] for line in expected[f"infer-{name}"].splitlines()]
    # 0.1.0 stopped its updates elsewhere, about as far from the optimum.
    np.testing.assert_allclose(model.transform(texts[:3]), found, atol=1e-4)


@pytest.mark.parametrize("name", list(PRIVATE))
def test_private_learners_go_on_with_their_ledgers(old, expected, documents, name, tmp_path):
    copied((old / "private").glob(f"{name}.*"), tmp_path)
    sizes = {**SIZES, "n_features": 40, "documents_per_snapshot": 900, "oversampling": 4}
    settings = PrivateSettings(**sizes, **PRIVATE[name])
    model = load(tmp_path / f"{name}.model")
    assert model.privacy["statement"] == "private"
    with Ledger.open(tmp_path / f"{name}.ledger", ledger_terms(settings)) as ledger:
        # Other runs, too, may go on with the ledger: of more and fewer topics, by another way.
        for changes in ({"n_components": 2}, {"n_components": 5}, {"clipping": "worst-case"}):
            other = replace(settings, **changes)
            if name != "prefix" or "clipping" not in changes:
                ledger.check(within(other, ledger.terms).event)
        assert ledger.epsilon_spent == pytest.approx(expected[f"private-{name}"]["epsilon_spent"])
        manager = ReleaseManager(SecureNoise(), ledger, name)
        learner = PrivateLearner(settings, manager, vocabulary="public")
        learner = load_state(tmp_path / f"{name}.state", learner)
        assert learner.engine.slots == 1250
        np.testing.assert_array_equal(learner.snapshot().components, model.components)
        users = [f"u{i}" for i in range(3000)]
        for at in range(1250, 2800, 50):
            own = users[at : at + 50] if name == "users" else None
            feed(learner, documents.rows(at, at + 50), own)
        newest = learner.snapshot()
    if learner.missed:
        assert name == "users"  # Half the budget a snapshot: topics may not stand above the noise.
    else:
        assert not np.array_equal(newest.components, model.components)
        assert newest.privacy["statement"] == "private"


@pytest.mark.parametrize("words", ["learned", "hashed"])
def test_checkpoints_of_a_daemon_go_on(old, texts, words):
    flags = {"source.files": "documents.jsonl", "snapshots.every": 500, "topics.count": 3}
    flags |= {"topics.oversampling": 4, "topics.warmup_documents": 300, "vocabulary.kind": words}
    with Checkpoints.open(old / f"checkpoints-{words}") as store:
        saved = store.newest()
        if words == "hashed":
            flags["vocabulary.hash_bits"] = saved.vocabulary.n_features.bit_length() - 1
        pipeline = open_pipeline(load_settings(environment={}, flags=flags), store).pipeline
    assert saved.vocabulary.kind == words
    assert pipeline.records == 1200
    pipeline.add(RecordBatch(texts[:100]))
    model = pipeline.release().model
    assert model.documents_seen + model.diagnostics["documents_skipped"] == 1300


def test_a_projection_and_the_daemons_that_share_it(old, expected):
    shared = load_projection(old / "shared.map")
    assert shared.whitening.shape[1] == 7
    merged = merge_checkpoints([old / "checkpoints-half0", old / "checkpoints-half1"])
    model = merged.engine.snapshot(merged.vocabulary)
    check_topics(model, expected, "merged")
    check_topics(load_state(old / "merged.state").snapshot(), expected, "merged")


def test_a_private_daemons_checkpoint_and_ledger_belong_together(old, tmp_path):
    copied([*old.glob("daemon.ledger*"), old / "checkpoints-private"], tmp_path)
    settings = PrivateSettings(**SIZES, n_features=32, documents_per_snapshot=500)
    with (
        Ledger.open(tmp_path / "daemon.ledger", ledger_terms(settings)) as ledger,
        Checkpoints.open(tmp_path / "checkpoints-private") as store,
    ):
        saved = store.newest(ledger, catch_up=True)
        assert saved.releases_behind == 0
        manager = ReleaseManager(SecureNoise(), ledger, "docs")
        learner = PrivateLearner(settings, manager, vocabulary="public", first_slot=0)
        saved.restore(learner)
        assert learner.engine.slots == 1200


def test_files_of_sites_are_refused_with_what_to_do(old):
    """Keys of 0.1.0 served all rounds: what was begun with them is not gone on with."""
    folder = old / "sites"
    for kind, name in ((FederationConfig, "roster"), (Share, "north.share"), (Round, "round2")):
        with pytest.raises(ModelFileError, match="use the same version of streamlda at all sites"):
            kind.load(folder / name)
