"""Online power methods: topics that they find, and what they say of them."""

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError
from streamlda.simulate import PlantedLDA
from tests.engine.kinds import KINDS, error, fed, planted_documents

engine = KINDS["online-power"].engine


# Measured 0.003 to 0.004 and 0.018 to 0.020 over four corpora: the bounds leave a half to spare.
@pytest.mark.parametrize(
    ("k", "d", "bound"), [(5, 50, 0.006), pytest.param(10, 1000, 0.03, marks=pytest.mark.long)]
)
def test_planted_topics_are_found_and_supported(k, d, bound):
    planted = PlantedLDA(k, d, seed=5, topic_concentration=0.1)
    settings = {"n_components": k, "n_features": d, "solver": "online-power", "refine": False}
    learner = Engine(EngineSettings(**settings))
    for _ in range(20):
        learner.add(planted.documents(10_000))
    model = learner.snapshot()
    assert error(planted, model) < bound
    assert model.diagnostics["topic_supported"] == [True] * k
    assert model.diagnostics["warnings"] == []
    assert model.diagnostics["components_finished"] == k
    np.testing.assert_allclose(model.alpha, 1 / k, atol=0.05)


def test_stream_that_ends_early_gives_what_is_finished_and_says_what_is_missing():
    documents = planted_documents()
    early = fed(engine(documents_per_round=1000), documents, 0, 900)
    with pytest.raises(InsufficientDataError, match="documents_per_round=1000"):
        early.snapshot()
    learner = fed(engine(), documents, 0, 1200)
    usable = int(documents.rows(0, 1200).usable.sum())
    model = learner.snapshot()
    # A component takes 4 rounds of 100 documents and one for its eigenvalue.
    assert model.diagnostics["components_finished"] == usable // 500 == 2
    assert model.diagnostics["documents_missing"] == 4 * 5 * 100 - usable
    assert sorted(model.diagnostics["topic_supported"])[:2] == [False, False]
    assert any(f"documents_missing={2000 - usable}" in w for w in model.diagnostics["warnings"])
    model = fed(learner, documents, 1200, 1200 + 2 * (2000 - usable)).snapshot()
    assert model.diagnostics["documents_missing"] == 0
    found = fed(early, documents, 900).snapshot().diagnostics
    assert found["components_finished"] == 2
    assert sorted(found["topic_supported"]) == [False, False, True, True]
    assert min(noise for noise in found["eigenvalue_noise"] if noise is not None) > 0
