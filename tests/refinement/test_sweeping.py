"""Sweeps after the passes: by the sampler that suits the documents."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda import StreamLDA
from streamlda.documents import DocumentBatch
from streamlda.engine.fit import documents_of_passes
from streamlda.model.evaluation import matched_l1_error
from streamlda.refinement import collapsed
from streamlda.refinement.choice import hold_out
from streamlda.refinement.gibbs import GibbsSampler
from streamlda.refinement.refine import Candidate
from streamlda.refinement.schedule import SWEEPS, THOROUGH_TIMES
from streamlda.refinement.settings import GibbsSettings
from streamlda.simulate import PlantedLDA
from streamlda.spectral.seeds import WORD_SHARE
from tests import oracle_refinement as twin

K, V, N, COLLAPSED = 12, 300, 1000, "collapsed_sweeps"


def planted(mean_length=9):
    corpus = PlantedLDA(K, V, alpha_0=0.3, mean_length=mean_length, topic_concentration=0.1, seed=0)
    learned, held_out = hold_out(corpus.documents(N))
    start = StreamLDA(K, refinement_passes=0, random_state=0).fit(learned.to_csr()).to_model()
    return corpus, learned, held_out, start


@pytest.fixture(scope="module")
def parts():
    return planted()


def test_sweeps_are_those_of_the_sampler_and_learn_what_was_held_out(parts):
    corpus, learned, held_out, start = parts
    passed, found = (Candidate(start, learned, 2) for _ in range(2))
    found.sweep(learned, 4, seed=5)
    model = passed.model
    sampler = GibbsSampler(found.documents, model.components, model.alpha, GibbsSettings(seed=5))
    averaged = round(4 * max(1.0, 40 * learned.n_documents / learned.lengths.sum()))
    sampler.sweep(2 * averaged, averaged=averaged)
    assert found.done["sweeps"] == 2 * averaged > 16
    np.testing.assert_array_equal(found.model.components, sampler.components)
    # Even: one that follows a few tokens a document lets small topics starve.
    np.testing.assert_array_equal(found.model.alpha, model.alpha)
    np.testing.assert_allclose(model.alpha, start.alpha_0 / K)
    assert sampler.drawn_alpha.sum() < 0.5 * start.alpha_0
    np.testing.assert_allclose(sampler.drawn_alpha, sampler.drawn_alpha.mean())
    shares = twin.expect_topics(held_out, sampler.components.T, sampler.drawn_alpha, 3)
    totals = sampler.totals + 0.1
    np.add.at(totals, held_out.word_ids, held_out.counts[:, None] * shares)
    found.learn(held_out)
    np.testing.assert_allclose(found.model.components, (totals / totals.sum(axis=0)).T, rtol=1e-4)
    before, after = (
        matched_l1_error(corpus.components, each.model.components).mean for each in (passed, found)
    )
    assert after < before


def test_documents_that_mix_many_topics_are_swept_longer(parts):
    _, learned, _, start = parts
    found = Candidate(replace(start, alpha=np.full(K, 7 / K)), learned, 1)
    found.sweep(learned, 1, seed=0)
    short = 40 * learned.n_documents / learned.lengths.sum()
    assert found.done["sweeps"] == 2 * round(np.sqrt((1 + 7) / 2) * short)


@pytest.mark.parametrize(
    ("length", "times", "name"),
    [(30, 1.0, COLLAPSED), (30, 0.5, COLLAPSED), (9, 1.0, "sweeps"), (9, 0.5, None)],
)
def test_the_sweeps_suit_the_documents(length, times, name):
    """Weights have no tokens to draw; documents with as many tokens as topics need none."""
    _, learned, held_out, start = planted(length)
    scaled = DocumentBatch.from_matrix(learned.to_csr() * times, integral=False)
    found = Candidate(start, scaled, 1)
    found.sweep(scaled, 4, seed=0)
    found.learn(held_out)
    swept = {key: found.done[key] for key in (COLLAPSED, "sweeps") if found.done.get(key)}
    assert list(swept) == ([] if name is None else [name])


def test_many_topics_are_moved_by_a_part_of_documents_before_a_third_of_the_sweeps(
    parts, monkeypatch
):
    """The part has a start and half a token for each word of each topic; weights are not drawn."""
    _, learned, _, start = parts
    assert documents_of_passes(learned, K) is learned
    monkeypatch.setattr("streamlda.engine.fit.MANY_COMPONENTS", K)
    assert documents_of_passes(learned, K) is learned
    monkeypatch.setattr("streamlda.engine.fit.START_DOCUMENTS", 300)
    part = documents_of_passes(learned, K)
    assert K * V / 2 <= part.lengths.sum() < 0.6 * learned.lengths.sum()
    monkeypatch.setattr("streamlda.refinement.schedule.FEWEST_DOCUMENTS", 1)
    found = [Candidate(start, each, 1, len(learned)).settle() for each in (part, learned)]
    assert found[0].done["batch_documents"] == found[1].done["batch_documents"]
    for each in found:
        each.sweep(learned, 3, seed=0)
    assert found[0].done["documents"] == found[1].done["documents"]
    assert found[0].done["sweeps"] == pytest.approx(found[1].done["sweeps"] / 3, abs=1)
    weights = DocumentBatch.from_matrix(learned.to_csr() * 1.5, integral=False)
    assert documents_of_passes(weights, K) is weights


@pytest.mark.parametrize("weight", [1.0, 1.5])
def test_few_of_the_documents_are_not_swept_for_all(weight, monkeypatch):
    """Topics of a part whose tokens are fewer than words of topics would be those of noise."""
    _, learned, *_, start = planted(30)
    scaled = DocumentBatch.from_matrix(learned.to_csr() * weight, integral=False)
    monkeypatch.setattr(collapsed, "MOST_RESPONSIBILITIES", 2 * learned.n_entries // 40)
    found = Candidate(start, scaled, 1).settle()
    found.sweep(scaled, 2, seed=0)
    assert COLLAPSED not in found.done
    assert (found.done["sweeps"] > 0) == (weight == 1)


@pytest.mark.parametrize("alpha_0", [2, 20])
def test_more_documents_make_better_topics_where_responsibilities_do_not_fit(alpha_0, monkeypatch):
    """5,000 have errors of .063 and .335. Gibbs sweeps from passes alone left 20,000 .371 of 20."""
    corpus = PlantedLDA(5, 1000, alpha_0=alpha_0, mean_length=60, topic_concentration=0.05, seed=0)
    X, errors, done = corpus.documents(20_000).to_csr(), [], []
    for n in (5000, 20_000):
        model = StreamLDA(5, random_state=0).fit(X[:n]).to_model()
        errors.append(matched_l1_error(corpus.components, model.components).mean)
        done.append(model.diagnostics["refinement"])
        # 5 topics take 8 numbers of an entry.
        monkeypatch.setattr(collapsed, "MOST_RESPONSIBILITIES", X.nnz // 2)
    assert done[0]["sweeps"] == 0 < done[1]["sweeps"]
    # Half of the documents are swept more often, unless they mix all topics.
    assert (done[1][COLLAPSED] > done[0][COLLAPSED]) == (alpha_0 == 2)
    assert errors[1] < 0.75 * errors[0]


def test_a_fit_sweeps_by_itself(parts):
    X = DocumentBatch.joined(parts[1:3]).to_csr()

    def fit(passes="auto", **settings):
        return StreamLDA(
            K, refinement_passes=passes, random_state=0, warmup_documents=300, **settings
        ).fit(X)

    usual, thorough = fit(), fit("thorough")
    done = [lda.diagnostics_["refinement"] for lda in (usual, thorough)]
    assert done[0]["sweeps"] > 4 * SWEEPS
    times = [done[1][each] / done[0][each] for each in ("passes", "sweeps")]
    np.testing.assert_allclose(times, THOROUGH_TIMES, rtol=0.05)
    assert [lda.to_model().settings["refinement_sweeps"] for lda in (usual, thorough)] == [
        each["sweeps"] for each in done
    ]
    assert usual.alpha_0_ == pytest.approx(1.0)
    assert done[0]["documents"] == int((X.sum(axis=1) > 0).sum())
    # The first words of a topic, and one that it hardly has.
    order = parts[0].components[0].argsort()
    columns = [*map(int, order[-2:]), int(order[0])]
    seeded = fit(seed_topics={"first": columns})
    assert seeded.diagnostics_["refinement"]["sweeps"] > 4 * SWEEPS
    assert seeded.components_[0, columns].min() > 0.9 * WORD_SHARE / (1 + 3 * WORD_SHARE)
