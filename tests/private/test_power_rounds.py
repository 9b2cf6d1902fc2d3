"""Rounds that answer a power method: sums, sensitivity, corrections, and topics from them.

What holds for all rounds alike is tested in `test_rounds`.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.privacy.clipping import clip_factors
from streamlda.privacy.events import NEIGHBORING_RELATIONS
from streamlda.private import power
from streamlda.private.contributions import TripleNorms
from streamlda.private.power import PowerRounds, PowerStatistic, answer_norm, centred_answers
from streamlda.private.topics import PairView
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.power import unit_columns
from tests import oracle
from tests.private.streams import (
    DOCUMENTS,
    LONGEST,
    POOL,
    PROJECTION,
    D,
    apart,
    batch_of_counts,
    settings_of,
    view_of,
)

#: Along the longest row of the projection, at right angles to it, and the row itself five times.
ALONG = unit_columns(PROJECTION[[3]].T, PROJECTION[[3]].T)
ORTHONORMAL = np.linalg.qr(np.hstack([ALONG, np.random.default_rng(0).normal(size=(3, 2))]))[0]
EQUAL = np.repeat(ALONG, 5, axis=1)
SPREAD_OUT = unit_columns(*[np.random.default_rng(1).normal(size=(3, 7))] * 2)
PROBES = {"orthonormal": ORTHONORMAL, "equal": EQUAL, "spread out": SPREAD_OUT}


def moved(probes, *streams, values_only=False, relation="add-remove", bound=0.3, group=None):
    """How far two streams are apart, over what the mechanism says at most."""
    bound *= LONGEST**3
    return apart(
        lambda: [PowerStatistic(PROJECTION, probes, bound, values_only=values_only)],
        settings_of(relation),
        streams,
        group=group,
    )


# Sums.


@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize("name", PROBES)
def test_sums_are_those_of_the_clipped_tensor(name, values_only):
    probes, view, bound = PROBES[name], view_of(POOL.values()), 0.5
    factors = clip_factors(TripleNorms(PROJECTION).norms(view), bound) * view.active
    T = np.zeros((3, 3, 3))
    for factor, document in zip(factors, POOL.values(), strict=True):
        tokens = [word for word, count in document.items() for _ in range(count)]
        if len(tokens) >= 3:
            T += factor * oracle.through(oracle.statistic(tokens, D, 3), PROJECTION)
    images = np.einsum("abc,bl,cl->al", T, probes, probes)
    expected = np.sum(images * probes, axis=0) if values_only else images
    part = PowerStatistic(PROJECTION, probes, bound, values_only=values_only)
    part.add(view)
    sums = part.take()
    np.testing.assert_allclose(sums["values" if values_only else "images"], expected, atol=1e-9)
    assert sums["triple_kept"] == pytest.approx(factors.sum())
    assert not any(np.any(array) for array in part.take().values())
    assert {b.name: b.shape for b in part.blocks()} == {k: np.shape(v) for k, v in sums.items()}


@pytest.mark.parametrize("values_only", [False, True])
def test_corrections_are_those_of_the_public_twin(values_only):
    rng = np.random.default_rng(2)
    documents = [{int(w): 2 for w in rng.choice(D, 3, replace=False)} for _ in range(20)]
    batch, first, pairs = batch_of_counts(documents), rng.dirichlet(np.ones(D)), np.eye(3) + 0.1
    twin = DocumentAssociation(PROJECTION, 0.7, first, pairs)
    twin.begin(SPREAD_OUT, values_only=values_only)
    twin.add(batch)
    part = PowerStatistic(PROJECTION, SPREAD_OUT, 1e6, values_only=values_only)
    part.add(view_of(documents))
    sums = part.take()
    images = None if values_only else sums["images"] / 20
    values = sums["values"] / 20 if values_only else np.sum(SPREAD_OUT * images, axis=0)
    found = centred_answers(images, values, SPREAD_OUT, PROJECTION.T @ first, pairs, 0.7)
    for mine, theirs in zip(found, twin.answer(), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, atol=1e-10)


# Sensitivity.


@pytest.mark.fuzz
@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@given(
    stream=st.lists(DOCUMENTS, min_size=1, max_size=6),
    other=DOCUMENTS,
    probes=st.sampled_from(sorted(PROBES)),
    bound=st.sampled_from([0.001, 0.3, 1.0]),
    group=st.sampled_from([1, 3, 64]),
    values_only=st.booleans(),
)
def test_no_neighbours_are_farther_apart_than_the_sensitivity(
    relation, stream, other, probes, bound, group, values_only
):
    changed = [{} if relation == "add-remove" else other, *stream[1:]]
    options = {"relation": relation, "bound": bound, "group": group}
    assert moved(PROBES[probes], stream, changed, values_only=values_only, **options) <= 1


@pytest.mark.parametrize("values_only", [False, True])
@pytest.mark.parametrize("name", ["orthonormal", "equal"])
def test_one_word_along_a_probe_attains_the_sensitivity(name, values_only):
    rest = [POOL["all words"], POOL["one word"]]
    here, there = [POOL["longest row"], *rest], [{}, *rest]
    # At the bound, the document counts in full in the number of documents as well.
    apart = moved(PROBES[name], here, there, values_only=values_only, bound=1.0)
    assert 0.99 < apart <= 1
    assert 0.97 < moved(PROBES[name], here, there, values_only=values_only) <= 1


def test_opposite_words_attain_the_sensitivity_of_replace_one():
    probe = PROJECTION[[0]].T  # The documents' rows are this one and its opposite, of norm 1.
    here, there = [POOL["one word"]], [POOL["its opposite"]]
    # All but the part of the number of documents, which is the same in both.
    assert 0.97 < moved(probe, here, there, relation="replace-one", bound=0.002) <= 1


def test_the_joint_norm_of_answers_is_at_most_that_of_the_tensor_times_the_spectral_norm():
    rng = np.random.default_rng(3)
    for t, L in ((2, 9), (5, 3), (6, 6)):
        U = unit_columns(*[rng.normal(size=(t, L))] * 2)
        for times, product, answer in (
            (2, "al,bl->abl", "abc,bl,cl->al"),
            (3, "al,bl,cl->abcl", "abc,al,bl,cl->l"),
        ):
            norm = answer_norm(U, times)
            matrix = np.einsum(product, *[U] * times).reshape(-1, L)
            assert norm == pytest.approx(np.linalg.norm(matrix, 2))
            T = rng.normal(size=(t, t, t))
            answers = np.einsum(answer, T, *[U] * times)
            assert np.linalg.norm(answers) <= norm * np.linalg.norm(T)
            assert 1 <= norm <= np.sqrt(L)
    assert answer_norm(np.eye(4), 2) == pytest.approx(1)
    assert answer_norm(EQUAL, 2) == pytest.approx(np.sqrt(5))


BUGS = {
    "restarts for the price of one": ("answer_norm", lambda probes, power: 1.0),
    "no clipping": ("clip_factors", lambda norms, bound: np.ones_like(norms)),
    "factors twice": (
        "clip_factors",
        lambda norms, bound: np.minimum(1, 2 * bound / (norms + 1e-9)),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug, monkeypatch):
    monkeypatch.setattr(power, *BUGS[bug])
    assert moved(EQUAL, [POOL["longest row"]], [{}]) > 1.5


def test_rounds_that_are_left_refine_the_components_found():
    settings = settings_of(n_features=12, documents_per_snapshot=2000, solver="noisy-power")
    rng, pairs = np.random.default_rng(0), np.eye(12)
    direction = unit_columns(*[rng.normal(size=(12, 1))] * 2)
    one, first = np.ones(1), rng.dirichlet(np.ones(12))
    view = PairView(first, pairs, None, 1e-3, one, direction, np.ones(2), 1e-3, centre=0.5)
    rounds = PowerRounds(settings, view, view.whitening)
    for _ in range(settings.n_rounds):
        block = rounds.statistic(1.0).blocks()[0]
        answer = {block.name: np.ones(block.shape), "triple_kept": np.array(1.0)}
        rounds.answer(answer, {"images": 0.1, "values": 0.1})
    assert rounds.method.finished
    assert rounds.method.components().eigenvectors.shape == (1, 1)
    assert rounds.topics(100, rng).components.shape == (1, 12)
