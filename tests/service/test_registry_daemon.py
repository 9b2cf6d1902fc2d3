"""``fit`` over a topic whose records need a schema registry."""

import numpy as np

from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from tests.kafka import schemas
from tests.kafka.schema_registry import schema_registry
from tests.service.daemon_process import texts
from tests.service.long_stream import as_json


def fitted(folder, topics, topic, **flags):
    given = {
        "kafka.bootstrap": topics.bootstrap,
        "kafka.topic": topic,
        "topics.count": 3,
        "topics.refine": False,
        "vocabulary.hash_bits": 8,
        "output.file": str(folder / "model"),
        **flags,
    }
    return fit(load_settings(None, {}, given, "fit"))


def test_a_fit_over_avro_is_the_fit_over_its_documents(topics, topic, tmp_path):
    documents = [{"text": text} for text in texts(600)]
    with schema_registry() as registry:
        values = schemas.avro(registry, *documents[:300])
        values += schemas.json_schema(registry, *documents[300:])
        values[100:100] = [b"\x00\x00\x00\x10\x00unknown", values[0][:9]]
        topics.fill(topic, values)
        found = fitted(tmp_path, topics, topic, **{"registry.url": registry.url})
    assert found.counts.documents == 600
    assert dict(found.counts.rejects) == {"unknown-schema": 1, "broken-record": 1}
    topics.fill(f"{topic}-plain", as_json([each["text"] for each in documents]))
    plain = fitted(tmp_path, topics, f"{topic}-plain")
    np.testing.assert_array_equal(found.model.components, plain.model.components)
