"""Replayed queries, which the private solvers are compared with."""

from bench import wa16_solvers
from streamlda.guarantee.noise import SeededNoise
from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA


def test_replayed_queries_find_the_topics_where_noise_is_small(monkeypatch):
    monkeypatch.setattr(wa16_solvers, "DELTA", 1e-3)
    corpus = PlantedLDA(2, 12, topic_concentration=0.2, mean_length=30, seed=4)
    parameters = {"n_components": 2, "n_features": 12, "documents": 4000, "epsilon": 25.0}
    found = wa16_solvers.replayed(corpus.documents(4000), parameters, 0, SeededNoise(8))
    assert matched_l1_error(corpus.components, found.components).mean < 0.25
