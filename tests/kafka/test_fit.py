"""``fit`` over a topic, which has no end."""

import json

import numpy as np
import pytest

from streamlda.model.topic_model import load
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA

K = 3


@pytest.mark.long
def test_a_topic_is_read_to_its_present_end_and_goes_on_from_there(topics, topic, tmp_path):
    texts = PlantedLDA(K, 40, seed=0, mean_length=20).texts(1200)
    records = [json.dumps({"text": text}).encode() for text in texts]
    topics.fill(topic, records[:700])
    (tmp_path / "all.jsonl").write_bytes(b"\n".join(records))
    common = {"topics.count": K, "topics.refine": False, "vocabulary.documents": 300}
    common |= {"vocabulary.token_pattern": r"w\d+", "output.file": str(tmp_path / "model")}
    kept = {"kafka.bootstrap": topics.bootstrap, "kafka.topic": topic}
    kept["checkpoint.folder"] = str(tmp_path / "kept")

    def model_of(**flags):
        found = fit(load_settings(None, {}, common | flags, "fit"))
        assert load(tmp_path / "model").documents_seen == found.model.documents_seen
        return found

    first = model_of(**kept)
    assert (first.counts.documents, first.stopped) == (700, False)
    topics.send(topic, records[700:])
    both = model_of(**kept)
    assert both.counts.documents == 1200
    whole = model_of(**{"source.files": [str(tmp_path / "all.jsonl")]})
    np.testing.assert_array_equal(both.model.components, whole.model.components)
