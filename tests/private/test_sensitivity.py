"""How far two neighbouring streams are apart in what noise is added to, for every kind of stage.

Everything is taken from the real accumulators: documents in, sums on the grid out. Distances are
in the weighted coordinates of the mechanism, whose `l2_sensitivity` is the claim under test.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.guarantee.events import NEIGHBORING_RELATIONS
from streamlda.guarantee.mechanism import JointGaussian
from streamlda.private import comparison, contributions, power, responsibilities
from streamlda.private.common_words import OfCommon
from streamlda.private.comparison import ComparisonStatistic
from streamlda.private.contributions import FirstStatistic, PairStatistic, TripleStatistic
from streamlda.private.power import PowerStatistic
from streamlda.private.public_start import FitsStatistic
from streamlda.private.responsibilities import RefinementStatistic
from streamlda.private.stage import groups_touched, joint_mechanism, unit_blocks
from tests.private.streams import (
    DOCUMENTS,
    KINDS,
    LONGEST,
    POOL,
    ROUNDS,
    apart,
    count_twice,
    settings_of,
    statistics_of,
)


def moved(kind, relation, *streams, bound=0.3, per_user=None, **options):
    """How far two streams are apart, over what the mechanism says at most."""
    config = settings_of(relation, per_user)
    return apart(lambda: statistics_of(kind, bound), config, streams, **options)


GROUPS = st.sampled_from([1, 2, 3, 64])


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS + ROUNDS)
@given(
    relation=st.sampled_from(NEIGHBORING_RELATIONS),
    stream=st.lists(DOCUMENTS, min_size=1, max_size=9),
    other=DOCUMENTS,
    slot=st.integers(0, 8),
    group=GROUPS,
    bound=st.sampled_from([0.02, 0.3, 1.0]),
    cuts=st.sets(st.integers(0, 1), max_size=2),
)
def test_no_neighbours_are_farther_apart_than_the_sensitivity(
    kind, relation, stream, other, slot, group, bound, cuts
):
    changed = stream.copy()
    changed[slot % len(stream)] = {} if relation == "zero-out" else other
    assert moved(kind, relation, stream, changed, group=group, bound=bound, cuts=cuts) <= 1


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["norms", "pairs dense", "all"])
@given(
    relation=st.sampled_from(NEIGHBORING_RELATIONS),
    stream=st.lists(st.tuples(DOCUMENTS, st.sampled_from("uuuab")), min_size=1, max_size=9),
    others=st.lists(st.tuples(DOCUMENTS, st.booleans()), min_size=9, max_size=9),
    g=st.integers(1, 3),
    group=GROUPS,
)
def test_no_neighbours_by_user_are_farther_apart_than_the_sensitivity(
    kind, relation, stream, others, g, group
):
    here, names = map(list, zip(*stream, strict=True))
    there, changed = here.copy(), names.copy()
    for slot, (document, held) in enumerate(others[: len(stream)]):
        if names[slot] == "u":
            held &= relation == "replace-one"
            there[slot], changed[slot] = (document, "v") if held else ({}, None)
    users = names, changed
    assert moved(kind, relation, here, there, group=group, per_user=g, users=users) <= 1


#: Bounds at which one word of the longest row is at those of all blocks: below 1 it is clipped,
#: but then only one of the three moments that a triple part scales by one factor is at its own,
#: and it counts less in the number of documents, 5 % of the budget of a power method.
POWER = [
    f"{answers} {name}" for answers in ("images", "values") for name in ("orthonormal", "equal")
]
ATTAINED = [
    (kind, 1.0, 0.99)
    for kind in [*KINDS, *POWER, "refined apart", "compared apart", "lengths", "fits", "public"]
]
ATTAINED += [(kind, 1.0, 0.99) for kind in ("common words", "common pairs", "all words")]
ATTAINED += [(kind, 0.3, 0.99) for kind in KINDS if kind not in ("triples", "all")]
ATTAINED += [(kind, 0.3, 0.97) for kind in POWER]


@pytest.mark.parametrize(("kind", "bound", "least"), ATTAINED)
def test_a_document_at_all_bounds_attains_the_sensitivity_of_zero_out(kind, bound, least):
    # One word: its norms are the largest there are.
    rest = [POOL["all words"], POOL["one word"], {}]
    streams = [POOL["longest row"], *rest], [{}, *rest]
    assert least < moved(kind, "zero-out", *streams, bound=bound) <= 1


@pytest.mark.parametrize("document", ["one word", "huge", "huge and mixed", "all words"])
def test_any_document_without_background_attains_the_sensitivity_of_a_refinement(document):
    rest = [POOL["all words"], POOL["like another"]]
    assert 0.99 < moved("refined apart", "zero-out", [POOL[document], *rest], [{}, *rest]) <= 1


def test_documents_at_all_bounds_attain_the_sensitivity_of_a_user():
    g = 3
    rest = [POOL["all words"], POOL["one word"], POOL["like another"]]
    own = [POOL["longest row"]] * (g + 2)
    here, there = [*own, *rest], [{}] * len(own) + rest
    users = ["u"] * len(own) + ["a", "a", "b"], [None] * len(own) + ["a", "a", "b"]
    for (kind, bound, least), group in itertools.product(ATTAINED, (1, 64)):
        options = {"bound": bound, "group": group, "per_user": g, "users": users}
        assert least < moved(kind, "zero-out", here, there, **options) <= 1
    users = ["u"] * len(own) + ["a", "a", "b"], ["v"] * len(own) + ["a", "a", "b"]
    streams = [*own, *rest], [POOL["one word"]] * len(own) + rest
    assert 0.99 < moved("refined apart", "replace-one", *streams, per_user=g, users=users) <= 1


@pytest.mark.parametrize(
    ("kind", "one", "other", "least"),
    [
        ("norms", "longest row", "three words", 0.99),
        ("triple norms", "longest row", "shortest row", 0.99),
        ("pairs dense", "longest row", "one word", 0.99),
        # Documents with opposite pairs have the same words: their first frequencies, an eighth of
        # the squared bound with a factor of 2 to 4, are the same.
        ("pairs through a projection", "rows that cancel", "rows that cancel, reversed", 0.96),
        # At all bounds, as their rows have an eighth of the largest norm. Words with opposite rows
        # have the same W'P2 W, 0.15 of the square.
        ("triples", "one word", "its opposite", 0.99 * np.sqrt(0.85)),
        # All but the part of the number of documents, which is the same in both.
        ("images a row", "one word", "its opposite", 0.97),
        ("refined apart", "one word", "longest row", 0.99),
        ("fits", "longest row", "shortest row", 0.99),
        ("public", "one word", "longest row", 0.99),
    ],
)
def test_documents_at_all_bounds_attain_the_sensitivity_of_replace_one(kind, one, other, least):
    rest = [POOL["all words"], POOL["like another"]]
    streams, bound = (
        ([POOL[one], *rest], [POOL[other], *rest]),
        0.125 if kind == "triples" else 2e-3,
    )
    assert least < moved(kind, "replace-one", *streams, bound=bound) <= 1


def test_replacing_a_user_by_another_with_blanks_touches_groups_of_both():
    # Group by group: slots 0 and 1 against 2 and 3.
    one = POOL["longest row"]
    users = ["u"] * 4, [None, None, "v", "v"]
    streams = [one] * 4, [{}, {}, POOL["one word"], POOL["one word"]]
    assert moved("all", "replace-one", *streams, group=1, per_user=2, users=users) <= 1
    config = [settings_of(relation, g) for relation in NEIGHBORING_RELATIONS for g in (None, 2)]
    assert [groups_touched(each) for each in config] == [1, 2, 1, 4]
    # Where the grid is what limits the steps, each group touched makes them finer.
    for each in config:
        statistics, touched = statistics_of("all", 0.3), groups_touched(each)
        found = joint_mechanism(statistics, 24, each, 1e6)
        blocks = unit_blocks(statistics, each)
        options = {"neighboring_relation": each.neighboring_relation, "n_max": 24, "group_max": 24}
        one, same = (JointGaussian(blocks, 1e6, groups_touched=k, **options) for k in (1, touched))
        assert found.steps == same.steps
        assert (found.steps == one.steps) == (touched == 1)


# Planted bugs: each must be seen by the same check on a few adversarial neighbours.

CASES = [
    ([POOL[name], *rest], [{}, *rest])
    for name in ("longest row", "huge", "one word")
    for rest in ([], [POOL["all words"]] * 9, [POOL["three words"], POOL["shortest row"]])
]

#: Rows that cancel out: hardly any bound on the tensor, but 2.9 times that on its pairs.
CANCEL = [([POOL["rows that cancel out"]], [{}])]

#: A long document among short ones.
LONG = [([{0: 12}, *[POOL["three words"]] * 5], [{}, *[POOL["three words"]] * 5])]

clip = contributions.clip_factors


def worst(kind, bound, cases):
    return max(moved(kind, "zero-out", *case, bound=bound) for case in cases)


def no_clipping(norms, bound):
    return np.ones(np.shape(norms))


def mean_clipping(norms, bound):
    return clip(np.full(np.shape(norms), np.mean(norms)), bound)


def twice(norms, bound):
    return 2 * clip(norms, bound)


def only(clipped):
    return lambda norms, bound: (clip if bound == clipped else no_clipping)(norms, bound)


@pytest.mark.parametrize(
    ("kind", "bound", "planted", "cases"),
    [
        *itertools.product(
            ["pairs dense", "pairs through a projection", "triples", "all"],
            [0.6],
            [no_clipping, mean_clipping, twice],
            [CASES],
        ),
        *(("images equal", 0.3, planted, CASES) for planted in (no_clipping, twice)),
        ("compared apart", 0.3, twice, CASES),
        *((kind, 0.3, twice, CASES) for kind in ("common words", "common pairs")),
        *(("refined apart", 0.3, planted, LONG) for planted in (no_clipping, mean_clipping)),
        *(("all", 0.25, only(0.25 * LONGEST**power), CASES) for power in (0, 1, 3)),
        ("triples", 2 / (99 * 98) / 8, only(2 / (99 * 98) / 8 * LONGEST**3), CANCEL),
    ],
)
def test_wrong_clip_factors_are_seen(kind, bound, planted, cases, monkeypatch):
    assert worst(kind, bound, cases) <= 1
    for module in (comparison, contributions, power, responsibilities):
        monkeypatch.setattr(module, "clip_factors", planted)
    assert worst(kind, bound, cases) > 1.05


def test_restarts_for_the_price_of_one_are_seen(monkeypatch):
    monkeypatch.setattr(power, "answer_norm", lambda probes, times: 1.0)
    assert worst("images equal", 0.3, CASES) > 1.5


@pytest.mark.parametrize(
    ("statistic", "kind"),
    [
        *((statistic, "all") for statistic in (FirstStatistic, PairStatistic, TripleStatistic)),
        (PowerStatistic, "images equal"),
        (RefinementStatistic, "refined apart"),
        (ComparisonStatistic, "compared apart"),
        (FitsStatistic, "fits"),
        (OfCommon, "common pairs"),
    ],
)
def test_a_document_that_counts_twice_is_seen(statistic, kind, monkeypatch):
    assert worst(kind, 0.3, CASES) <= 1
    count_twice(monkeypatch, statistic)
    assert worst(kind, 0.3, CASES) > 1.05
