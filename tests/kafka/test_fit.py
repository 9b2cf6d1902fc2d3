"""``fit`` over sources without an end: a topic, and files that grow."""

import json

import numpy as np
import pytest

from streamlda.model.topic_model import load
from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA

K = 3


def model_of(folder, name, **flags):
    given = {
        "topics.count": K,
        "topics.refine": False,
        "vocabulary.documents": 300,
        "vocabulary.token_pattern": r"w\d+",
        "output.file": str(folder / name),
        **{name.replace("__", ".", 1): value for name, value in flags.items()},
    }
    found = fit(load_settings(None, {}, given, "fit"))
    assert load(folder / name).documents_seen == found.model.documents_seen
    return found


@pytest.mark.long
def test_a_topic_is_read_to_its_present_end_and_goes_on_from_there(topics, topic, tmp_path):
    texts = PlantedLDA(K, 40, seed=0, mean_length=20).texts(1200)
    records = [json.dumps({"text": text}).encode() for text in texts]
    topics.fill(topic, records[:700])
    kept = {
        "kafka__bootstrap": topics.bootstrap,
        "kafka__topic": topic,
        "checkpoint__folder": str(tmp_path / "kept"),
    }
    first = model_of(tmp_path, "a", **kept)
    assert (first.counts.documents, first.stopped) == (700, False)
    topics.send(topic, records[700:])
    both = model_of(tmp_path, "a", **kept)
    assert both.counts.documents == 1200
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"\n".join(records))
    whole = model_of(tmp_path, "b", source__files=[str(file)])
    np.testing.assert_array_equal(both.model.components, whole.model.components)
