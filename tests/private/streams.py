"""Streams of documents as word counts, and how far two stages are apart; for tests of stages."""

import itertools
import math

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.privacy.users import UserBound
from streamlda.private import stage as stage_module
from streamlda.private.contributions import (
    FirstStatistic,
    NormStatistic,
    PairStatistic,
    TripleStatistic,
)
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage, joint_mechanism

D = 5

#: The longest row is that of word 3; rows repeat and cancel; word 4 has hardly any.
_U = np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
MAP = np.array([_U[0], -_U[0], _U[0], 2 * _U[1], 1e-3 * _U[1]])

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


def batch_of_counts(documents, d=D):
    """Return documents given as mappings of word to count as a batch."""
    rows = [sorted(document.items()) for document in documents]
    flat = [entry for row in rows for entry in row]
    return DocumentBatch(
        np.array([count for _, count in flat], dtype=np.float64),
        np.array([word for word, _ in flat], dtype=np.int32),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        d,
    )


#: What a stage may consist of. Bounds are in units of the largest norm.
KINDS = ["norms", "triple norms", "pairs dense", "pairs through a map", "triples", "all"]


def parts_of(kind, bound, d=D, whitening=MAP):
    first = FirstStatistic(d, bound, 0.1)
    dense = PairStatistic(d, None, bound, 0.78)
    largest = float(np.linalg.norm(whitening, axis=1).max())
    pairs = PairStatistic(d, whitening, bound * largest, 0.78)
    triples = TripleStatistic(whitening, bound * largest**3, 0.12)
    return {
        "norms": lambda: [NormStatistic(first, 0.3), NormStatistic(pairs, 0.7)],
        "triple norms": lambda: [NormStatistic(triples, 1.0)],
        "pairs dense": lambda: [first, dense],
        "pairs through a map": lambda: [first, pairs],
        "triples": lambda: [triples],
        "all": lambda: [first, pairs, triples],
    }[kind]()


def settings_of(relation="add-remove", per_user=None, **options):
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
        values |= {"privacy_unit": "user", "documents_per_user": per_user, "snapshots": 3}
    return PrivateSettings(**values)


def stage_of(parts, settings, places, group=None, multiplier=1.0):
    """Return a stage with groups of `group` documents, the largest possible by default."""
    before = stage_module.GROUPS
    try:
        if group is not None:
            stage_module.GROUPS = (group,)
        mechanism = joint_mechanism(parts, places, settings, multiplier)
    finally:
        stage_module.GROUPS = before
    return Stage("stage", 0, places, parts, mechanism)


def filled(stage, documents, settings, users=None, d=D, cuts=()):
    """Fill a stage with documents, in batches cut at `cuts`, and bring all to the grid."""
    batch = batch_of_counts(documents, d)
    active = np.ones(len(documents), dtype=bool)
    if users is not None:
        active = UserBound(settings.documents_per_user).accept(users)
    ends = [0, *sorted(cuts), len(documents)]
    for start, stop in itertools.pairwise(ends):
        stage.add(batch.rows(start, stop), active[start:stop])
    stage.flush()
    return stage


def distance(mechanism, aggregates, others):
    """Return how far two raw sums on the grid are apart, in weighted coordinates."""
    square = 0.0
    for block in mechanism.blocks:
        scale = mechanism.steps[block.name] / block.l2_clip_norm
        steps = (aggregates[block.name] - others[block.name]) * scale
        square += mechanism.fractions[block.name] * float(np.sum(steps**2))
    return math.sqrt(square)
