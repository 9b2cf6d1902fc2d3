"""Distance of two neighbouring streams in the sums that noise is added to, by kind of stage.

Everything is taken from the real accumulators: documents in, sums on the grid out. Distances are
in the weighted coordinates of the mechanism, whose `l2_sensitivity` is the claim under test.
"""

from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda import private
from streamlda.guarantee import sums
from streamlda.guarantee.mechanism import NEIGHBORING_RELATIONS
from streamlda.guarantee.noise import SeededNoise
from streamlda.private import stage as stage_module
from streamlda.private.contributions import Statistic, View
from tests.guarantee.test_sums import no_clipping
from tests.private.streams import (
    DOCUMENTS,
    KINDS,
    POOL,
    ROUNDS,
    apart,
    filled,
    settings_of,
    stage_of,
    statistics_of,
    view_of,
)


def moved(kind, relation, *streams, bound=0.3, per_user=None, **options):
    config = settings_of(relation, per_user)
    return apart(lambda: statistics_of(kind, bound), config, streams, **options)


def test_every_statistic_is_compared():
    modules = [
        import_module(each.name) for each in iter_modules(private.__path__, "streamlda.private.")
    ]
    known = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    methods = {"blocks", "contributions", "doubles"}
    statistics = {kind for kind in known if methods <= {*dir(kind)}} - {Statistic}
    compared = {type(each) for kind in KINDS + ROUNDS for each in statistics_of(kind, 0.3)}
    assert statistics == compared, "add a kind to tests/private/streams.py"


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS + ROUNDS)
@given(
    relation=st.sampled_from(NEIGHBORING_RELATIONS),
    stream=st.lists(DOCUMENTS, min_size=1, max_size=9),
    other=DOCUMENTS,
    slot=st.integers(0, 8),
    bound=st.sampled_from([0.02, 0.3, 1.0]),
    cuts=st.sets(st.integers(0, 1), max_size=2),
)
def test_no_neighbours_are_farther_apart_than_the_sensitivity(
    kind, relation, stream, other, slot, bound, cuts
):
    changed = stream.copy()
    changed[slot % len(stream)] = {} if relation == "zero-out" else other
    assert moved(kind, relation, stream, changed, bound=bound, cuts=cuts) <= 1


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["norms", "pairs dense", "all"])
@given(
    relation=st.sampled_from(NEIGHBORING_RELATIONS),
    stream=st.lists(st.tuples(DOCUMENTS, st.sampled_from("uuuab")), min_size=1, max_size=9),
    others=st.lists(st.tuples(DOCUMENTS, st.booleans()), min_size=9, max_size=9),
    g=st.integers(1, 3),
)
def test_no_neighbours_by_user_are_farther_apart_than_the_sensitivity(
    kind, relation, stream, others, g
):
    here, names = map(list, zip(*stream, strict=True))
    there, changed = here.copy(), names.copy()
    for slot, (document, held) in enumerate(others[: len(stream)]):
        if names[slot] == "u":
            held &= relation == "replace-one"
            there[slot], changed[slot] = (document, "v") if held else ({}, None)
    users = names, changed
    assert moved(kind, relation, here, there, per_user=g, users=users) <= 1


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
    rest = [POOL["all words"], POOL["one word"], {}]
    streams = [POOL["longest row"], *rest], [{}, *rest]
    assert least < moved(kind, "zero-out", *streams, bound=bound) <= 1


def test_documents_at_all_bounds_attain_the_sensitivity_of_a_user():
    g = 3
    rest = [POOL["all words"], POOL["one word"], POOL["like another"]]
    own = [POOL["longest row"]] * (g + 2)
    here, there = [*own, *rest], [{}] * len(own) + rest
    users = ["u"] * len(own) + ["a", "a", "b"], [None] * len(own) + ["a", "a", "b"]
    for kind, bound, least in ATTAINED:
        options = {"bound": bound, "per_user": g, "users": users}
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


def stage_with(kind):
    return stage_of(statistics_of(kind, 0.3), settings_of(), 24)


def test_documents_are_read_in_parts_of_any_size(monkeypatch):
    whole = filled(stage_with("all"), list(POOL.values())).sums.aggregates
    for doubles in (1, 100, 10**9):
        monkeypatch.setattr(stage_module, "DOUBLES", doubles)
        for name, array in filled(stage_with("all"), list(POOL.values())).sums.aggregates.items():
            np.testing.assert_array_equal(array, whole[name])


@pytest.mark.parametrize("kind", ["norms", "triple norms", "pairs dense", "all"])
def test_released_values_are_whole_steps_of_one_public_grid(kind):
    rows, found = list(POOL.values()), []
    for documents in (rows, [*rows[:-1], {}]):
        stage = filled(stage_with(kind), documents)
        released = stage.release(SeededNoise(1))
        shapes = {name: np.shape(array) for name, array in released.items()}
        assert shapes == {block.name: block.shape for block in stage.mechanism.blocks}
        for name, values in released.items():
            whole = values / stage.mechanism.steps[name]
            np.testing.assert_array_equal(whole, np.rint(whole))
        found.append((stage, released))
    (one, first), (other, second) = found
    assert one.mechanism.steps == other.mechanism.steps
    # With the same noise, the releases differ by the integers alone: any value that the one can
    # take the other can, too.
    for name, step in one.mechanism.steps.items():
        difference = one.sums.aggregates[name] - other.sums.aggregates[name]
        np.testing.assert_array_equal(first[name] - second[name], difference * step)


def alike(kind):
    documents, same = [*POOL.values(), {0: 1, 2: 2**31 - 2}, {0: 1, 1: 2, 3: 3}], True
    for statistic in statistics_of(kind, 0.3):
        whole = pieces_of(statistic, documents)
        alone = [pieces_of(statistic, [document])[0] for document in documents]
        same &= whole == alone == pieces_of(statistic, documents[::-1])[::-1]
    return same


def pieces_of(statistic, documents):
    found = [b""] * len(documents)
    for name, (values, rows, pointers) in statistic.contributions(view_of(documents)).items():
        for n in range(len(documents)):
            own = slice(n, n + 1) if rows is None else slice(pointers[n], pointers[n + 1])
            cells = b"" if rows is None else rows[own].tobytes()
            found[n] += name.encode() + cells + values[own].tobytes()
    return found


@pytest.mark.parametrize("kind", KINDS + ROUNDS)
def test_a_contribution_depends_on_its_own_document_alone(kind):
    assert alike(kind)


def test_a_statistic_that_mixes_documents_is_found(monkeypatch):
    project = View.project
    monkeypatch.setattr(
        View, "project", lambda self, W: project(self, W) + self.batch.lengths.max()
    )
    assert not alike("pairs through a projection")


# Planted bugs: each must be seen by the same check on a few adversarial neighbours.

CASES = [
    ([POOL[name], *rest], [{}, *rest])
    for name in ("longest row", "huge", "one word")
    for rest in ([], [POOL["all words"]] * 9, [POOL["three words"], POOL["shortest row"]])
]


clip = sums.clip_factors


def worst(kind, bound, cases=CASES):
    return max(moved(kind, "zero-out", *case, bound=bound) for case in cases)


def twice(norms, bound):
    return 2 * clip(norms, bound)


@pytest.mark.parametrize("planted", [no_clipping, twice])
@pytest.mark.parametrize("kind", ["pairs dense", "pairs through a projection", "triples", "all"])
def test_wrong_clip_factors_are_seen(kind, planted, monkeypatch):
    assert worst(kind, 0.3) <= 1
    monkeypatch.setattr(sums, "clip_factors", planted)
    assert worst(kind, 0.3) > 1.05
