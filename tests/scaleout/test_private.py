"""A private fit on a cluster: number for number the releases of one process, paid for once."""

import itertools
import os
import pickle
import signal

import dask
import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    InvalidSettingError,
    LedgerError,
)
from streamlda.learner import feed
from streamlda.model.evaluation import matched_l1_error
from streamlda.privacy.ledger import FingerprintKey
from streamlda.privacy.ledger.documents import values_of_fingerprints
from streamlda.privacy.ledger.fingerprints import fingerprints_of
from streamlda.privacy.noise import SeededNoise
from streamlda.private import stage as stage_module
from streamlda.private.learner import PrivateLearner
from streamlda.private.matrix import VOCABULARY
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.released import released_model
from streamlda.private.settings import PrivateSettings
from streamlda.scaleout import PrivateFit, fit_privately, merge, of_partitions
from streamlda.scaleout.private import stage_of, sum_groups
from streamlda.scaleout.shards import Piece, Shard
from streamlda.simulate import PlantedLDA
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.private.audit import Recorder

D, SLOTS = 30, 40_000
#: Their ends are at no border of a group, and one is empty.
CUTS = [0, 1, 9000, 9000, 20_011, 33_333, SLOTS]

KEY = FingerprintKey(bytes(32))


def settings_of(**changes):
    values = {
        "n_components": 3,
        "n_features": D,
        "epsilon": 10.0,
        "delta": 1e-6,
        "documents_per_snapshot": SLOTS,
        "oversampling": 5,
    }
    return PrivateSettings(**values | changes)


def planted_topics():
    return PlantedLDA(3, D, seed=4, topic_concentration=0.1).components


@pytest.fixture(scope="module")
def rows():
    planted = PlantedLDA(3, D, seed=4, mean_length=10, topic_concentration=0.1)
    return planted.documents(SLOTS)


def partitions(rows):
    return [rows.rows(a, b) for a, b in itertools.pairwise(CUTS)]


def in_one_process(settings, rows, public=None):
    recorder = Recorder(SeededNoise(7))
    learner = PrivateLearner(settings, recorder, vocabulary=VOCABULARY, public=public)
    feed(learner, rows, last=True)
    if learner.private.ends_well:
        learner.release()
    return recorder, learner.snapshot()


def assert_same_releases(mine, theirs):
    assert [name for name, *_ in mine.released] == [name for name, *_ in theirs.released]
    for (stage, arrays, stddevs), (_, others, wanted) in zip(
        mine.released, theirs.released, strict=True
    ):
        assert stddevs == wanted
        assert arrays.keys() == others.keys()
        for name in arrays:
            np.testing.assert_array_equal(arrays[name], others[name], f"{stage} {name}")


def on_cluster(client, parts, settings, public=None):
    recorder = Recorder(SeededNoise(7))
    return recorder, fit_privately(client, of_partitions(parts), settings, recorder, public=public)


def killing(part, marker):
    """Return a partition; the first time, end the process instead."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


@pytest.mark.parametrize(
    ("changes", "kills"),
    [
        ({}, False),
        ({"solver": "simultaneous", "n_iterations": 3}, False),
        ({"documents_per_snapshot": 19_000}, False),
        ({"refinement_rounds": 2}, False),
        ({"public_model": "given"}, False),
        ({"documents_per_snapshot": 20_000, "snapshots": 1}, True),
    ],
    ids=["tensor", "power", "two windows, and a rest", "refinement", "public", "a lost worker"],
)
def test_releases_are_those_of_one_process(client, rows, tmp_path, changes, kills):
    settings, parts, marker = settings_of(**changes), partitions(rows), tmp_path / "killed"
    public = None
    if settings.public_model is not None:
        topics = planted_topics()[:2]
        public = PublicTopics(topics, np.ones(2), np.full(D, 1 / D), settings.public_model)
    if kills:
        parts = [dask.delayed(killing)(part, marker) for part in parts]
    wanted, model = in_one_process(settings, rows, public)
    recorder, found = on_cluster(client, parts, settings, public)
    assert_same_releases(recorder, wanted)
    assert (wanted.released[1][0] == "public") == (public is not None)
    np.testing.assert_array_equal(found.components, model.components)
    assert found.documents_seen == model.documents_seen
    assert found.privacy == model.privacy
    assert marker.exists() == kills


def by_another_engine(fit, rows, parts=3):
    """Sum every stage by pickles, in parts that are merged last to first."""
    while fit.stage is not None:
        stage = pickle.loads(pickle.dumps(fit.stage))
        found = [stage.sums_of([rows.rows(a, b)], (a, b)) for a, b in stage.slots(parts)]
        fit.release(merge(*found[::-1]))
    return fit.model()


def test_another_engine_makes_the_releases_of_one_process(rows, tmp_path):
    wanted, model = in_one_process(settings_of(), rows)
    recorder = Recorder(SeededNoise(7))
    with PrivateFit(settings_of(), recorder, SLOTS) as fit:
        found = by_another_engine(fit, rows)
    assert_same_releases(recorder, wanted)
    np.testing.assert_array_equal(found.components, model.components)
    assert found.privacy == model.privacy
    with open_ledger(tmp_path / "ledger", settings_of()) as ledger:
        with PrivateFit(settings_of(), ReleaseManager(None, ledger), SLOTS) as fit:
            assert by_another_engine(fit, rows).privacy["ledger"] == ledger.ledger_id
        paid = ledger.path.read_bytes()
        again = PrivateFit(settings_of(), ReleaseManager(None, ledger, "other"), SLOTS)
        with pytest.raises(LedgerError, match="nothing was spent"):
            by_another_engine(again, rows)
        assert ledger.path.read_bytes() == paid


def test_another_engine_must_sum_every_slot_once_and_in_whole_groups(rows, monkeypatch):
    monkeypatch.setattr(stage_module, "GROUPS", (64,))
    recorder = Recorder(SeededNoise(7))
    fit = PrivateFit(settings_of(), recorder, SLOTS)
    stage = fit.stage
    (a, b), (c, d) = stage.slots(2)
    first, second = (stage.sums_of([rows.rows(*cut)], cut) for cut in ((a, b), (c, d)))
    with pytest.raises(InvalidSettingError, match="each document must be summed once"):
        merge(first, second, first)
    with pytest.raises(InvalidDocumentsError, match="every document of a stage"):
        fit.release(first)
    for cut in ((a + 1, b), (a, b - 1), (c, d + 64)):
        with pytest.raises(InvalidSettingError, match="whole groups"):
            stage.sums_of([rows.rows(*cut)], cut)
    for end in (b - 1, b + 1):
        with pytest.raises(InvalidDocumentsError, match="a row for each slot"):
            stage.sums_of([rows.rows(a, end)], (a, b))
    other = PrivateFit(settings_of(), Recorder(SeededNoise(7)), SLOTS).stage
    theirs = [other.sums_of([rows.rows(*cut)], cut) for cut in ((a, b), (c, d))]
    with pytest.raises(InvalidSettingError, match="of the stage that is merged or released"):
        merge(first, theirs[1])
    with pytest.raises(InvalidSettingError, match="of the stage that is merged or released"):
        fit.release(merge(*theirs))
    assert recorder.released == []
    fit.release(merge(second, first))
    assert recorder.released[0][0] == stage.name == "norms"


def test_one_document_more_would_show(client, rows):
    """The comparison above is not empty: noise is equal there, so it sees a single document."""
    wanted, _ = in_one_process(settings_of(), rows)
    counts = rows.counts.copy()
    counts[0] += 100
    other = DocumentBatch(counts, rows.word_ids, rows.row_pointers, D)
    recorder, _ = on_cluster(client, partitions(other), settings_of())
    with pytest.raises(AssertionError):
        assert_same_releases(recorder, wanted)


@pytest.mark.parametrize("stage", ["norms", "pairs"])
def test_any_cut_at_groups_gives_the_sums_of_one_process(monkeypatch, rows, stage):
    """In this process, with groups so small that there are many."""
    monkeypatch.setattr(stage_module, "GROUPS", (64,))
    settings = settings_of(documents_per_snapshot=2000)
    learner = PrivateLearner(settings, ReleaseManager(SeededNoise(1)), vocabulary=VOCABULARY)
    engine = learner.engine
    if stage == "pairs":
        engine.skip(engine.stage.slots_left)
        engine.accept(engine.due.release(SeededNoise(1)))
    shared = stage_of(learner, 2000, None, KEY)
    assert shared.name == engine.stage.name == stage
    ((first, last),) = shared.spans
    engine.add(rows.rows(first, last))
    wanted = engine.stage.state()

    def part(a, b, first_row=None):
        start = a if first_row is None else first_row
        return sum_groups(shared, (a, b), [Piece(Shard("p"), start, start + b - a)], rows)

    borders = [first, *range(first + 64, last, 192), last]
    pieces = [part(a, b) for a, b in itertools.pairwise(borders)]
    total = pieces[0]
    for other in pieces[1:]:
        total = merge(total, other)
    for name in wanted:
        np.testing.assert_array_equal(total.arrays[name], wanted[name], name)
    every = fingerprints_of(rows.rows(first, last), KEY)
    documents = values_of_fingerprints(every)
    noted = np.concatenate([values for _, values in total.parts])
    np.testing.assert_array_equal(np.sort(noted), np.sort(documents))
    # Other rows are other sums.
    shifted = part(first, last, first + 20_000)
    assert any((shifted.arrays[name] != wanted[name]).any() for name in wanted)


def shrinking(part, marker):
    """Return a partition, and less of it every other time."""
    if marker.exists():
        return part.rows(0, 10)
    marker.touch()
    return part


def test_a_partition_that_changes_is_noticed_before_a_release(client, rows, tmp_path):
    recorder = Recorder(SeededNoise(7))
    part = dask.delayed(shrinking)(rows, tmp_path / "made")
    with pytest.raises(InvalidDocumentsError, match="rows that were counted"):
        fit_privately(client, of_partitions([part]), settings_of(), recorder)
    assert recorder.released == []


@pytest.mark.long
def test_a_fit_that_fails_in_a_round_says_what_its_releases_give(client, rows, tmp_path):
    class Fails(ReleaseManager):
        def release(self, name, *rest, **options):
            if name == "refine 2":
                raise OSError("no space")
            return super().release(name, *rest, **options)

    settings = settings_of(refinement_rounds=2)
    with (
        open_ledger(tmp_path / "ledger", settings) as ledger,
        pytest.raises(OSError, match="no space") as failed,
    ):
        fit_privately(client, of_partitions([rows]), settings, Fails(None, ledger))
    (said,) = failed.value.__notes__
    assert "(incomplete, without refine 2): streamlda budget" in said
    model = released_model(tmp_path / "ledger")
    assert matched_l1_error(planted_topics(), model.components).mean < 0.2


def test_what_cannot_be_summed_is_refused_before_anything_is_paid(client, rows, tmp_path):
    settings = settings_of(documents_per_snapshot=2 * SLOTS)
    with open_ledger(tmp_path / "ledger", settings) as ledger:
        before = ledger.path.read_bytes()
        with pytest.raises(InsufficientDataError, match=r"slots=40000 .*nothing was released"):
            fit_privately(client, of_partitions([rows]), settings, ReleaseManager(None, ledger))
        blank, manager = (
            of_partitions([rows.rows(0, 0), np.zeros((SLOTS, D), np.int64)]),
            ReleaseManager(None, ledger),
        )
        with pytest.raises(InsufficientDataError, match=r"no row has a .*nothing was spent"):
            fit_privately(client, blank, settings_of(), manager)
        assert ledger.path.read_bytes() == before
    learned = Vocabulary.learn(["ab ab cd", "ab cd"], size=2, max_document_frequency=1.0)
    selected = Vocabulary.selected(["ab"], TextAnalyzer(), selection={"threshold": 1.0})
    users = {"privacy_unit": "user", "documents_per_user": 2, "snapshots": 1}
    for changes, words, wanted in (
        (users, None, "got privacy_unit='user'"),
        ({"mode": "prefix", "snapshots": 2}, None, "got mode='prefix'"),
        ({}, learned, "kind='learned'"),
        ({}, selected, "kind='selected'"),
        ({}, Vocabulary.hashed(4), "words=16"),
    ):
        with pytest.raises(InvalidSettingError, match=wanted):
            fit_privately(
                client, of_partitions([["ab"]]), settings_of(**changes), ReleaseManager(), words
            )
