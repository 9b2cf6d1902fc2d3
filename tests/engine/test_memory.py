"""Memory of a fit besides its documents."""

import tracemalloc

import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.kernels import load_kernels
from streamlda.simulate import PlantedLDA
from tests.engine.kinds import SAMPLES_BYTES


@pytest.mark.long
@pytest.mark.parametrize(
    ("V", "length", "more", "limit"),
    [
        # 22 of 25 MB; it was 72 with copies of documents and samples beside the sums.
        (6000, 15, {"warmup_documents": 1000}, lambda s: 0.65 * (s.state_bytes + SAMPLES_BYTES)),
        # 6.6 arrays of words by topics; it was 10.3 with copies.
        (40_000, 30, {"solver": "online-power", "n_iterations": 2}, lambda s: 7 * 8 * 20 * 40_000),
    ],
)
def test_a_fit_holds_sums_or_arrays_of_topics_and_little_else(V, length, more, limit):
    documents = PlantedLDA(20, V, mean_length=length, seed=1).documents(V if V < 10_000 else 3000)
    settings = EngineSettings(n_components=20, n_features=V, **more)
    load_kernels()
    tracemalloc.start()
    try:
        Engine.fit(settings, documents)
        assert tracemalloc.get_traced_memory()[1] < limit(settings)
    finally:
        tracemalloc.stop()
