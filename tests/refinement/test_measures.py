"""Prevalence, alpha and coherence as measured in samples; the samples themselves."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import SAMPLE_DOCUMENTS, Samples, add_measurements, fit_alpha_to
from streamlda.refinement.refine import refine_model
from streamlda.refinement.sample import Sample, SampledDocuments
from streamlda.utils.arrays import split_state
from tests.corpora import LikeText


def content(sample):
    arrays, values = split_state(sample.state())
    return values, {name: array.tolist() for name, array in arrays.items()}


def hit(lengths, distance):
    """Return the documents that hold a token whose number is a multiple of the distance."""
    ends = np.cumsum(lengths)
    return [n for n, end in enumerate(ends) if -(-(end - lengths[n]) // distance) * distance < end]


@given(
    seed=st.integers(0, 2**16),
    most=st.integers(1, 20),
    entries=st.integers(1, 80),
    of_tokens=st.booleans(),
)
@settings(max_examples=60)
def test_a_sample_holds_every_dth_place_however_a_stream_is_cut(seed, most, entries, of_tokens):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, 61, rng.integers(1, 61)).tolist()
    cuts = rng.integers(0, 61, rng.integers(0, 6)).tolist()
    # Document n has n + 1 as its second count, and so is known again.
    rows = [[max(1, length - n - 1), n + 1] for n, length in enumerate(lengths)]
    batch = DocumentBatch.from_matrix(np.array(rows))
    sizes = batch.lengths.astype(int).tolist() if of_tokens else [1] * len(rows)
    limits = {"most": most, "entries": entries, "of_tokens": of_tokens}
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    whole, parts, pieces = Sample(**limits), Sample(**limits), []
    whole.add(batch)
    for start, stop in pairwise(ends):
        piece = Sample(**limits, begin=parts.end)
        for sample in (parts, piece):
            sample.add(batch.rows(start, stop))
        pieces.append(piece)
    pieced = Sample(**limits)
    pieced.merge(*pieces)
    assert content(whole) == content(parts) == content(pieced)
    distance = 1
    while len(hit(sizes, distance)) > 1 and (
        len(hit(sizes, distance)) > most or 2 * len(hit(sizes, distance)) > entries
    ):
        distance *= 2
    assert (whole.distance, whole.end) == (distance, sum(sizes))
    documents, hits = whole.collect()
    due = hit(sizes, distance)
    if of_tokens:
        assert (documents.counts[1::2] - 1).tolist() == due
    assert len(documents) == len(due)
    assert hits.sum() == -(-sum(sizes) // distance)
    again = Sample(**limits)
    again.restore(whole.state(), 2)
    for sample in (whole, again):
        sample.add(batch)
    assert content(whole) == content(again)


def test_samples_of_two_streams_are_joined_either_way_alike():
    corpus = LikeText(4, 60, seed=1)
    parts = [corpus.documents(n) for n in (300, 500)]
    samples = []
    for order in ((0, 1), (1, 0)):
        mine, other = (Sample(100, 4000) for _ in range(2))
        mine.add(parts[order[0]])
        other.add(parts[order[1]])
        before = content(other)
        mine.merge(other)
        assert content(other) == before
        samples.append(mine)
    assert content(samples[0]) == content(samples[1])
    assert samples[0].end == sum(part.lengths.sum() for part in parts)
    assert len(samples[0]) <= 100


@pytest.fixture(scope="module")
def text():
    corpus = LikeText(12, 400, seed=3)
    return corpus, corpus.documents(6000)


def model_of(corpus, **others):
    K = len(corpus.components)
    background = corpus.prevalence @ corpus.components
    return TopicModel(
        components=corpus.components,
        alpha=np.full(K, 1 / K),
        background=background / background.sum(),
        settings={"alpha_0": 1.0},
        documents_seen=6000,
        tokens_seen=600_000,
        **others,
    )


def off(model, documents, shares):
    """Return the largest factor to the mean of transform by tokens, topics of 0.5 % or more."""
    found = documents.lengths @ model.transform(documents)
    found /= found.sum()
    large = found >= 0.005
    assert large.sum() >= 8
    return np.maximum(shares / found, found / shares)[large].max()


def test_refined_topics_have_the_share_that_inference_gives_them(text):
    """The last pass's own sums, and alpha, are far off; see that they would not do."""
    corpus, documents = text
    start = model_of(corpus)
    rng = np.random.default_rng(0)
    # Proportions as wrong as spectral ones of text are.
    start = replace(start, alpha=start.alpha * rng.permutation(np.geomspace(0.05, 5, 12)))
    start = replace(start, diagnostics={"eigenvalues": [1.0] * 12, "directions_supported": 12})
    model = refine_model(start, documents, passes=2)
    assert off(model, documents, model.prevalence) < 1.2
    assert off(model, documents, model.alpha / model.alpha_0) > 1.25
    assert np.all(np.diff(model.prevalence) <= 0)
    assert model.diagnostics["prevalence_documents"] <= SAMPLE_DOCUMENTS
    assert model.alpha_0 == pytest.approx(start.alpha_0)


def test_prevalence_is_that_of_all_documents_of_a_short_stream(text):
    corpus, documents = text
    model, samples, few = model_of(corpus), Samples(), Samples()
    assert add_measurements(model, samples).prevalence is None
    samples.add(documents)
    assert off(model, documents, add_measurements(model, samples).prevalence) < 1.15
    few.add(documents.rows(0, 700))
    found = add_measurements(model, few)
    assert found.diagnostics["prevalence_documents"] == 700
    assert off(model, documents.rows(0, 700), found.prevalence) < 1.03


@pytest.mark.parametrize("alpha_0", [0.3, 1.0, 3.0])
def test_alpha_follows_the_documents(alpha_0):
    """1000 documents of 150 tokens; 3 standard errors of each parameter, and the method's own."""
    shares = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    corpus = LikeText(5, 200, seed=5, alpha=alpha_0 * shares, spread=0.0, concentration=0.05)
    documents = corpus.documents(1500)
    drawn = SampledDocuments(documents, documents.lengths)
    model = model_of(corpus)
    kept, _ = fit_alpha_to(replace(model, alpha=np.full(5, alpha_0 / 5)), drawn)
    assert kept.sum() == pytest.approx(alpha_0)
    np.testing.assert_allclose(kept / alpha_0, shares, rtol=0.3)
    free = replace(model, settings={"alpha_0": None})
    alpha, said = fit_alpha_to(free, drawn)
    assert alpha.sum() == pytest.approx(alpha_0, rel=0.25)
    assert said == {}
    np.testing.assert_array_equal(fit_alpha_to(replace(free, alpha=alpha), drawn)[0], alpha)
