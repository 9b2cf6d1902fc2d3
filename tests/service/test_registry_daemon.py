"""Daemons and ``fit`` whose records need a schema registry."""

import numpy as np
import pytest

from streamlda.run.fit import fit
from streamlda.settings.load import load_settings
from tests.kafka import schemas
from tests.kafka.broker import free_ports
from tests.kafka.schema_registry import schema_registry
from tests.kafka.topics import wait_until
from tests.service.daemon_process import Daemon, left_by, run_to_end, texts
from tests.service.long_stream import (
    answer_of,
    as_json,
    ending,
    not_ready,
    topic_settings,
    wait_for_slots,
)

#: Stands in documents, and must stand in no log line.
SECRET = "zebrafinch"
UNKNOWN = b"\x00\x00\x00\x10\x00" + SECRET.encode()


@pytest.fixture
def registry():
    with schema_registry() as registry:
        yield registry


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
    return fit(load_settings(None, {}, {k: v for k, v in given.items() if v is not None}, "fit"))


def test_a_fit_over_avro_is_the_fit_over_its_documents(registry, topics, topic, tmp_path):
    documents = [{"text": text} for text in texts(600)]
    values = schemas.avro(registry, *documents[:300])
    values += schemas.json_schema(registry, *documents[300:])
    values[100:100] = [UNKNOWN, values[0][:9]]
    topics.fill(topic, values)
    found = fitted(tmp_path, topics, topic, **{"registry.url": registry.url})
    assert found.counts.documents == 600
    assert dict(found.counts.rejects) == {"unknown-schema": 1, "broken-record": 1}
    topics.fill(f"{topic}-plain", as_json([each["text"] for each in documents]))
    plain = fitted(tmp_path, topics, f"{topic}-plain")
    np.testing.assert_array_equal(found.model.components, plain.model.components)


@pytest.mark.long
def test_a_registry_that_is_away_at_the_start_and_goes_again_ends_nothing(
    registry, topics, topic, tmp_path
):
    documents = [{"text": f"{SECRET} {text}"} for text in texts(3000)]
    first = schemas.avro(registry, *documents[:1500])
    second = schemas.json_schema(registry, *documents[1500:])
    first[::10] = [UNKNOWN] * 150
    topics.fill(topic, first)
    (port,) = free_ports(1)
    more = {"registry.url": registry.url, "http.port": port, "breaker.attempts": 1}
    settings = topic_settings(tmp_path / "daemon", topics.bootstrap, topic, **more)
    registry.stop()
    with Daemon(settings | ending(3000)) as daemon:
        stalled = daemon.wait_for("stalled")
        assert stalled["what"] == "source"
        assert answer_of(port, "/livez")["alive"]
        assert "source stalled since" in not_ready(port)
        registry.start()
        wait_for_slots(daemon, port, 1500)
        wait_until(lambda: not not_ready(port))
        # It needs a schema that it has not seen, and cannot have it.
        registry.answer = (503, {"error_code": 50003, "message": "x"})
        topics.send(topic, second)
        daemon.wait_for("stalled", 2)
        assert answer_of(port, "/status")["places"] == 1500
        # A login that was good once may be again.
        registry.answer = (401, {"error_code": 401, "message": "x"})
        daemon.wait_for("open-failed", 3)
        assert daemon.process.poll() is None
        registry.answer = None
        assert daemon.end() == 0
    assert SECRET.encode() not in b"".join(daemon.raw)
    twin = topic_settings(tmp_path / "twin", topics.bootstrap, topic, **more)
    run_to_end(twin | ending(3000))
    assert left_by(tmp_path / "daemon") == left_by(tmp_path / "twin")
