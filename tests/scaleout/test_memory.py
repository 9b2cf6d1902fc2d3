"""The memory that a fit takes is known before, and what does not fit is refused."""

import numpy as np
import pytest

from streamlda.engine.settings import EngineSettings
from streamlda.scaleout import ClusterError, learn_once, of_files
from streamlda.scaleout.memory import BLOCK_BYTES, IDLE_BYTES, PAUSE, SETS, MemoryPlan
from streamlda.spectral.moments import Moments
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.exit_codes import exit_code
from tests.scaleout.conftest import connect

#: What a worker holds, and what it continues to hold.
FREED, STAYS = [], []


@pytest.mark.parametrize(("topics", "words"), [(3, 60), (10, 400), (3, 5)])
def test_a_set_of_sums_takes_what_the_plan_says(topics, words):
    settings = EngineSettings(n_components=topics, n_features=words)
    plan = MemoryPlan.of(settings, words)
    moments = Moments(np.ones((words, settings.n_columns)), settings.n_triple_columns)
    nbytes = sum(array.nbytes for array in moments.state().values())
    assert plan.sums == pytest.approx(nbytes, rel=0.05)
    assert plan.projection == 8 * words * settings.n_columns
    assert plan.worker >= IDLE_BYTES + BLOCK_BYTES + SETS * plan.sums


@pytest.mark.long
def test_workers_without_room_are_refused_before_a_document_is_read(cluster, tmp_path, monkeypatch):
    """Of 1 GB each for 100 topics of 2^17 columns; what is offered in place of it fits."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one two three"}\n')
    settings = EngineSettings(n_components=100, n_features=2**17)
    monkeypatch.setattr("streamlda.scaleout.fit.memory_limits", lambda client: [4e9, 1e9])
    with connect(cluster.scheduler_address) as client:
        corpus = of_files(path)
        path.unlink()
        with pytest.raises(ClusterError, match=r"memory_limit_mb=1000.*at most \d+,\d+ words") as e:
            learn_once(client, corpus, settings, Vocabulary.hashed(17))
    assert exit_code(e.value) == 74
    fewer = int(str(e.value).split("at most ")[1].split(" ")[0].replace(",", ""))
    assert MemoryPlan.of(settings, fewer).worker <= PAUSE * 1e9
    said = MemoryPlan.of(settings, fewer).described([4e9, 1e9], 7)
    assert "workers 2, shards 7" in said
    assert "(of 1,000 MB)" in said
