"""Sweeps after the passes: made where they help, by the held-out documents."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda import StreamLDA
from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import matched_l1_error
from streamlda.refinement.choice import choose, hold_out
from streamlda.refinement.gibbs import GibbsSampler
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import USUAL_ROUNDS, Rounds
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.sweeping import sweep_topics
from streamlda.simulate import PlantedLDA
from streamlda.spectral.seeds import WORD_SHARE
from tests import oracle_refinement as twin

K, V, N = 12, 300, 1000


def planted(alpha_0=0.3):
    """Return a corpus, its documents to learn and held out, and passes over the former."""
    corpus = PlantedLDA(K, V, alpha_0=alpha_0, mean_length=30, topic_concentration=0.1, seed=0)
    learned, held_out = hold_out(corpus.documents(N))
    start = StreamLDA(K, refinement_passes=0, random_state=0).fit(learned.to_csr()).to_model()
    return corpus, learned, held_out, refined(start, learned, passes=2)


@pytest.fixture(scope="module")
def parts():
    return planted()


def test_sweeps_are_those_of_the_sampler_and_learn_what_was_set_aside(parts):
    corpus, learned, held_out, model = parts
    found = sweep_topics(model, learned, held_out, Rounds(4, 3, 1, 0.0), seed=5)
    sampler = GibbsSampler(
        learned, model.components, model.alpha, GibbsSettings(seed=5, fits_alpha_0=False)
    )
    sampler.sweep(4, averaged=3)
    assert (found.sweeps, found.averaged) == (4, 3)
    np.testing.assert_array_equal(found.alpha, sampler.alpha)
    assert found.alpha.sum() == pytest.approx(model.alpha_0)
    smooth = sampler.totals + 0.01 * sampler.totals.mean()
    shares = twin.expect_topics(held_out, smooth / smooth.sum(axis=0), found.alpha, 5)
    totals = sampler.totals + 0.1
    np.add.at(totals, held_out.word_ids, held_out.counts[:, None] * shares)
    np.testing.assert_allclose(found.components, (totals / totals.sum(axis=0)).T, rtol=1e-4)
    errors = [
        matched_l1_error(corpus.components, topics).mean
        for topics in (model.components, found.components)
    ]
    assert errors[1] < errors[0]


def test_what_is_compared_with_the_start_has_had_its_sweeps(parts, monkeypatch):
    monkeypatch.setattr("streamlda.refinement.collapsed.LEAST_TOKENS", 1000)
    _, learned, held_out, _ = parts
    start = StreamLDA(K, refinement_passes=0, random_state=0).fit(learned.to_csr()).to_model()
    made = []

    def recorded(*arguments):
        made.append(sweep_topics(*arguments))
        return made[-1]

    monkeypatch.setattr("streamlda.refinement.refine.sweep_topics", recorded)
    found = refined(start, learned, passes=6, rounds=Rounds(8, 3, 1, 0.0), held_out=held_out)
    topics = replace(start, components=made[0].unaware, alpha=made[0].alpha)
    said = choose(start, topics, held_out, learned).diagnostics["refinement_choice"]
    assert found.diagnostics["refinement_choice"] == said
    assert not np.allclose(made[0].unaware, made[0].components)


def test_a_fit_sweeps_by_itself_unless_it_is_to_be_quick(parts, monkeypatch):
    monkeypatch.setattr("streamlda.refinement.collapsed.LEAST_TOKENS", 1000)
    X = DocumentBatch.joined(parts[1:3]).to_csr()

    def fit(passes="auto", **settings):
        return StreamLDA(
            K, refinement_passes=passes, random_state=0, warmup_documents=300, **settings
        ).fit(X)

    usual, quick = fit(), fit("quick")
    done = [lda.diagnostics_["refinement"] for lda in (usual, quick)]
    assert [each["passes"] for each in done] == [done[0]["passes"]] * 2
    assert done[0]["sweeps"] >= USUAL_ROUNDS.sweeps
    assert done[1]["sweeps"] == 0
    assert [lda.to_model().settings["refinement_sweeps"] for lda in (usual, quick)] == [
        each["sweeps"] for each in done
    ]
    assert usual.alpha_0_ == pytest.approx(1.0)
    assert usual.diagnostics_["refinement"]["documents"] == N
    # The first words of a topic, and one that it hardly has.
    order = parts[0].components[0].argsort()
    columns = [*map(int, order[-2:]), int(order[0])]
    seeded = fit(seed_topics={"first": columns})
    assert seeded.diagnostics_["refinement"]["sweeps"] >= USUAL_ROUNDS.sweeps
    assert seeded.components_[0, columns].min() > 0.9 * WORD_SHARE / (1 + 3 * WORD_SHARE)
