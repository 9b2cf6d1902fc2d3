"""Memory of a fit besides its documents."""

import tracemalloc

import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.kernels import load_kernels
from streamlda.simulate import PlantedLDA
from tests.engine.kinds import SAMPLES_BYTES


def peak_of(settings, documents):
    load_kernels()
    tracemalloc.start()
    try:
        Engine.fit(settings, documents)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_a_fit_holds_sums_and_then_samples_and_little_else():
    K, V = 20, 6000
    documents = PlantedLDA(K, V, mean_length=15, seed=1).documents(6000)
    settings = EngineSettings(n_components=K, n_features=V, warmup_documents=1000)
    peak = peak_of(settings, documents)
    # 22 of 25 MB; it was 72 with copies of documents and samples beside the sums.
    assert peak < 0.65 * (settings.state_bytes + SAMPLES_BYTES)


@pytest.mark.long
def test_a_fit_by_the_online_power_method_holds_few_arrays_of_words_by_topics():
    K, V = 20, 40_000
    documents = PlantedLDA(K, V, mean_length=30, seed=1).documents(3000)
    settings = EngineSettings(n_components=K, n_features=V, solver="online-power", n_iterations=2)
    # 6.6 of them; it was 10.3 with copies.
    assert peak_of(settings, documents) < 7 * 8 * K * V
