"""Numbers of passes and sweeps that suit a corpus, and the steps they are made of."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine, EngineSettings
from streamlda.refinement.refine import refine_model
from streamlda.refinement.schedule import passes_for
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.simulate import PlantedLDA

K, V = 4, 60


@pytest.fixture(scope="module")
def planted():
    corpus = PlantedLDA(K, V, alpha_0=0.5, mean_length=6, topic_concentration=0.1, seed=3)
    documents = corpus.documents(500)
    documents = documents.where(documents.usable).rows(0, 350)
    engine = Engine(
        EngineSettings(n_components=K, n_features=V, warmup_documents=350, refine=False)
    )
    engine.add(documents)
    return documents, engine.snapshot()


def test_short_documents_move_topics_and_empty_ones_nothing(planted):
    documents, model = planted
    plain = refine_model(model, documents, passes=1)
    for tokens in (0, 1, 2):
        rows = DocumentBatch.from_matrix(tokens * np.eye(V)[:20])
        made = refine_model(model, DocumentBatch.joined([documents, rows]), passes=1)
        assert (made.components == plain.components).all() == (tokens == 0)
        assert made.diagnostics["refinement"]["documents"] == 350 + 20 * (tokens > 0)
        np.testing.assert_allclose(made.components.sum(axis=1), 1)


def test_passes_make_about_as_many_steps_whatever_the_number_of_documents():
    few = {200: 30, 1000: 6, 3000: 2, 50_000: 2, 100_000: 2, 195_000: 1, 10**9: 1}
    for documents, passes in few.items():
        assert passes_for(documents) == passes
    for documents in np.geomspace(1500, 290_000, 60).astype(int).tolist():
        size = min(max(documents // 100, 30), 1000)
        steps = passes_for(documents) * documents / size
        assert steps == pytest.approx(200, rel=0.5)


def stepwise(model, batch, passes=1, alpha=None, **settings):
    flat = 1 / (1 + model.alpha_0)
    usual = {"batch_documents": 30, "annealing": flat}
    given = StepwiseEMSettings(**{**usual, **settings}, seeds=model.seeds)
    alpha = np.full(K, model.alpha.mean()) if alpha is None else alpha
    machine = StepwiseEM.of_topics(model.components, alpha, model.background, given)
    for _ in range(passes):
        machine.add(batch)
    machine.flush()
    return machine


@pytest.mark.parametrize(("copies", "size", "passes"), [(1, 30, 1), (29, 101, 1), (3, 30, 20)])
def test_passes_are_the_steps_of_the_machine(planted, copies, size, passes):
    """Annealing ends halfway."""
    documents, model = planted
    batch = DocumentBatch.joined([documents] * copies)
    settings = {"batch_documents": size, "annealing_steps": passes * -(-len(batch) // size) // 2}
    found = refine_model(model, batch, passes=passes)
    order = found.diagnostics["refinement"]["start_topics"]
    expected = stepwise(model, batch, passes, **settings)
    assert found.diagnostics["refinement"]["steps"] == expected.steps
    np.testing.assert_array_equal(found.components, expected.components[order])
    others = {"step_offset": 1.0, "annealing": 0.7, "smoothing": 0.012}
    for name, value in {**others, "alpha": model.alpha}.items():
        other = stepwise(model, batch, **{**settings, name: value})
        assert not np.array_equal(found.components, other.components[order])
