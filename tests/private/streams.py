"""Streams of documents as counts, real runs over them, and how far two stages are apart."""

import itertools

import numpy as np
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.guarantee.noise import SeededNoise
from streamlda.private import common_words
from streamlda.private.comparison import ComparisonStatistic
from streamlda.private.contributions import (
    FirstStatistic,
    Lengths,
    NormStatistic,
    PairStatistic,
    TripleStatistic,
    View,
)
from streamlda.private.learner import PrivateLearner
from streamlda.private.power import PowerStatistic
from streamlda.private.public_start import FitsStatistic, PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.responsibilities import RefinementStatistic
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage, joint_mechanism
from streamlda.private.topics import PrivateTopics
from streamlda.spectral.power import unit_columns
from streamlda.spectral.topics import SpectralTopics
from streamlda.utils.arrays import to_arrays
from tests.privacy.neighbours import distance

D = 5

#: The longest row is that of word 3; rows repeat and cancel; word 4 has hardly any.
_U = np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
PROJECTION = np.array([_U[0], -_U[0], _U[0], 2 * _U[1], 1e-3 * _U[1]])

LONGEST = float(np.linalg.norm(PROJECTION, axis=1).max())

#: Documents that go to the ends of what there can be: word -> count.
POOL = {
    "blank": {},
    "short": {0: 2},
    "one word": {0: 3},
    "its opposite": {1: 3},
    "longest row": {3: 40},
    "shortest row": {4: 7},
    "huge": {3: 100_000},
    "huge and mixed": {0: 50_000, 1: 49_000, 2: 1, 3: 3, 4: 1},
    "rows that cancel": {0: 1010, 1: 990},
    "rows that cancel, reversed": {0: 990, 1: 1010},
    "rows that cancel out": {0: 50, 1: 50},
    "all words": dict.fromkeys(range(D), 1),
    "three words": {0: 1, 3: 1, 4: 1},
    "like another": {0: 2, 3: 1},
}

DOCUMENTS = st.sampled_from(sorted(POOL)).map(POOL.__getitem__) | st.dictionaries(
    st.integers(0, D - 1), st.integers(1, 30)
)


def batch_of_counts(documents, d=D):
    rows = [[document.get(word, 0) for word in range(d)] for document in documents]
    return DocumentBatch.from_matrix(np.reshape(rows, (-1, d)))


def view_of(documents, d=D):
    return View(batch_of_counts(list(documents), d))


def sums_of(statistic, view):
    found = {}
    for block in statistic.blocks():
        values, rows, _ = statistic.contributions(view)[block.name]
        width = block.shape[-1] if len(block.shape) > 1 else 1
        total = np.zeros((block.cells // width, width))
        if rows is None:
            total += values.sum(axis=0).reshape(total.shape)
        else:
            np.add.at(total, rows, values)
        found[block.name] = total.reshape(block.shape)
    return found


#: Along the longest row of the projection, at right angles to it, and the row itself five times.
ALONG = unit_columns(PROJECTION[[3]].T, PROJECTION[[3]].T)
PROBES = {
    "orthonormal": np.linalg.qr(np.hstack([ALONG, np.random.default_rng(0).normal(size=(3, 2))]))[
        0
    ],
    "equal": np.repeat(ALONG, 5, axis=1),
    "spread out": unit_columns(*[np.random.default_rng(1).normal(size=(3, 7))] * 2),
    "a row": PROJECTION[[0]].T,
}

#: Topics, prior, background and word weights: each word in one topic (words 0 and 3 are all but
#: certain of one of their own), or in all.
APART = np.full((2, D), 1e-12)
APART[0, [0, 1, 2]], APART[1, [3, 4]] = 1 / 3, 1 / 2
MIXED = np.array([[0.5, 0.1, 0.1, 0.2, 0.1], [0.1, 0.2, 0.3, 0.2, 0.2]])
EVEN = np.full(D, 1 / D)
PUBLIC = {
    "apart": (APART, np.ones(2), np.full(D, 1e-12), np.ones(D)),
    "mixed": (MIXED, np.array([0.2, 0.4]), EVEN, np.array([1.0, 3.0, 2.0, 1.5, 40.0])),
}


def topics_of(components, alpha, background):
    """Topics as the post-processing has them, with hardly anything known of their eigenvalues."""
    n = np.arange(1.0, len(alpha) + 1)
    alpha_0 = float(np.sum(alpha))
    spectral = SpectralTopics(components, alpha, alpha_0, n, n / 10, n, n, 100)
    return PrivateTopics(components, alpha, background, spectral, n / 10)


#: Refined topics, and the tokens of a document that counts in full. Each word in one topic:
#: documents are all but of one topic each.
CONCENTRATED = APART / APART.sum(axis=1, keepdims=True)
COMPARED = {
    "apart": (topics_of(CONCENTRATED, np.full(2, 1e-3), EVEN), 3.0),
    "mixed": (topics_of(MIXED, np.array([0.2, 0.4]), EVEN), 9.0),
}

#: Public topics: word 3 is all but certain of one, words 0 to 2 are in the other, and word 4, like
#: all of them, in the word frequencies. So words are e times as probable as these, or less.
FITTING = PublicTopics(
    np.array([[0, 0, 0, 1, 0], [1, 1, 1, 0, 0]]) / [[1], [3]], np.ones(2), EVEN, ""
)

#: What a stage may consist of. Bounds are in units of the largest norm.
KINDS = ["norms", "triple norms", "pairs dense", "pairs through a projection", "triples", "all"]
ROUNDS = [f"{answers} {probes}" for answers in ("images", "values") for probes in PROBES]
ROUNDS += [f"refined {public}" for public in PUBLIC]
ROUNDS += [*(f"compared {which}" for which in COMPARED), "lengths", "fits", "public"]
ROUNDS += ["common words", "common pairs", "all words"]

#: Common words; the others are 0 and 4.
SOME = np.array([1, 2, 3])


def statistics_of(kind, bound):
    if kind == "lengths":
        return [NormStatistic(Lengths(), 1.0)]
    if kind == "fits":
        return [FitsStatistic(FITTING)]
    if kind == "public":
        return [FITTING.shares()]
    if kind in (common_words.WORDS, common_words.PAIRS):
        return common_words.statistics(kind, None if kind == common_words.WORDS else SOME, D)
    if kind == "all words":
        return [RefinementStatistic(*PUBLIC["apart"], background_prior=3.5, totals_weight=1.0)]
    if kind in ROUNDS:
        which, name = kind.split(" ", 1)
        if which == "refined":
            return [RefinementStatistic(*PUBLIC[name], background_prior=3.5)]
        if which == "compared":
            return [ComparisonStatistic(*COMPARED[name])]
        of_values, bound = which == "values", bound * LONGEST**3
        return [PowerStatistic(PROJECTION, PROBES[name], bound, values_only=of_values)]
    first = FirstStatistic(D, bound, 0.1)
    pairs = PairStatistic(D, PROJECTION, bound * LONGEST, 0.78)
    triples = TripleStatistic(PROJECTION, bound * LONGEST**3, 0.12)
    return {
        "norms": lambda: [NormStatistic(first, 0.3), NormStatistic(pairs, 0.7)],
        "triple norms": lambda: [NormStatistic(triples, 1.0)],
        "pairs dense": lambda: [first, PairStatistic(D, None, bound, 0.78)],
        "pairs through a projection": lambda: [first, pairs],
        "triples": lambda: [triples],
        "all": lambda: [first, pairs, triples],
    }[kind]()


def settings_of(relation="zero-out", per_user=None, **options):
    values = {
        "n_components": 2,
        "n_features": D,
        "epsilon": 20.0,
        "delta": 1e-4,
        "documents_per_snapshot": 600,
        "neighboring_relation": relation,
        **options,
    }
    if per_user is not None:
        values = {"privacy_unit": "user", "documents_per_user": per_user, "snapshots": 3} | values
    return PrivateSettings(**values)


def wide(**options):
    """Settings with more words than a whole pair matrix is made for."""
    few = {"n_components": 3, "n_features": 2000, "epsilon": 4.0, "documents_per_snapshot": 40_000}
    return settings_of(**(few | options))


def stage_of(statistics, settings, slots):
    mechanism = joint_mechanism(statistics, slots, settings, 1.0)
    by_user = settings.privacy_unit == "user"
    return Stage("stage", 0, slots, statistics, mechanism, by_user=by_user)


def filled(stage, documents, users=None, d=D, cuts=()):
    batch = batch_of_counts(documents, d)
    for start, stop in itertools.pairwise([0, *sorted(cuts), len(documents)]):
        stage.add(batch.rows(start, stop), users if users is None else users[start:stop])
    return stage


def apart(statistics, config, streams, *, users=(None, None), cuts=()):
    """How far two streams of a stage are apart, over what the mechanism says at most."""
    stages = [
        filled(stage_of(statistics(), config, 24), documents, names, cuts=ends)
        for documents, names, ends in zip(streams, users, ((), cuts), strict=True)
    ]
    mechanism = stages[0].mechanism
    return distance(mechanism, *(s.sums.aggregates for s in stages)) / mechanism.l2_sensitivity


def check_noise(stage, config):
    mechanism, by_user = stage.mechanism, config.privacy_unit == "user"
    assert mechanism.noise_multiplier == config.noise_multiplier
    assert mechanism.neighboring_relation == config.neighboring_relation
    assert mechanism.documents_per_unit == (config.documents_per_user if by_user else 1)
    assert mechanism.n_max >= stage.last - stage.first
    assert (stage.sums.users is not None) == by_user


class Recorder(ReleaseManager):
    def __init__(self, *args):
        super().__init__(*args)
        self.released = []

    def release(self, *args, **values):
        arrays = super().release(*args, **values)
        self.released.append((args[0], arrays, args[5]["stddevs"]))
        return arrays


class Run:
    """A learner, what it released and what it published; `script` are releases of another run."""

    def __init__(self, config, seed=1, first_slot=0, script=()):
        self.noise, self.script = SeededNoise(seed), script
        self.learner = PrivateLearner(config, first_slot=first_slot)
        self.filled, self.stages, self.released = [], [], []
        self.raw, self.snapshots, self.lost = [], [], 0

    def add(self, batch, users=None, start=0, stop=None):
        stop = batch.n_documents if stop is None else stop
        while start < stop and self.learner.stage is not None:
            rest = batch.rows(start, stop)
            start += self.learner.add(rest, None if users is None else users[start:stop])
            self.settle()
        return self

    def settle(self, fed=None):
        due, stage = self.learner.due_stage, self.learner.stage
        if due is None:
            return
        check_noise(stage, self.learner.settings)
        if fed is None and self.script:
            fed = self.script[len(self.released)]
        released = due.release(self.noise) if fed is None else fed
        self.filled.append(stage)
        self.stages.append((due.name, due.first, due.last))
        self.released.append(released)
        self.raw.append({name: array.copy() for name, array in stage.sums.aggregates.items()})
        before = self.learner.last
        self.learner.accept(released)
        self.lost += bool(self.learner.private.missed)
        if self.learner.last is not before:
            self.snapshots.append(self.learner.last)

    def save(self, *, and_restore):
        arrays, values = self.learner.state()
        if and_restore:
            old = self.learner
            self.learner = PrivateLearner(old.settings, public=old.public)
            assert self.learner.restore(arrays, values).progress == old.progress
        return arrays


def run(config, batch, users=None, seed=1, cuts=(), first_slot=0):
    own = Run(config, seed, first_slot)
    for start, stop in itertools.pairwise([0, *sorted(cuts), batch.n_documents]):
        own.add(batch, users, start, stop)
    return own


def replayed(own, config):
    """Return a run that is fed the released sums of another, over blanks."""
    other = Run(config, script=own.released)
    for _ in own.released:
        other.learner.skip(other.learner.stage.slots_left)
        other.settle()
    return other


def check_resumes(runs, rows, at):
    """Check that of two runs the one that is saved and restored at a slot is as the one saved."""
    for own, restores in zip(runs, (False, True), strict=True):
        own.add(rows, stop=at)
        arrays = own.save(and_restore=restores)
        own.add(rows, start=at)
    assert_same_runs(*runs)
    return arrays


def slot_of(config, stage, offset=7):
    """Return a slot within a stage of the first window, or of the first round after it."""
    firsts = {name: first for name, first, _ in config.stage_slots()}
    return firsts.get(stage, config.documents_per_snapshot) + offset


def assert_same_sums(one, other):
    assert one.stages == other.stages
    for mine, theirs in zip(one.raw, other.raw, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])


def assert_same_runs(one, other):
    assert_same_sums(one, other)
    assert_same_snapshots(one, other)


def assert_same_snapshots(one, other):
    assert len(one.snapshots) == len(other.snapshots) > 0
    for mine, theirs in zip(one.snapshots, other.snapshots, strict=True):
        for name in ("number", "stages", "bounds"):
            assert getattr(mine, name) == getattr(theirs, name)
        spectral = mine.topics.spectral, theirs.topics.spectral
        for found, expected in ((mine.topics, theirs.topics), spectral):
            arrays = to_arrays(expected, "", but=("spectral",))
            for name, array in to_arrays(found, "", but=("spectral",)).items():
                np.testing.assert_array_equal(array, arrays[name], err_msg=name)
