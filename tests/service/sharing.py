"""Daemons that share a topic's partitions: their settings, what they learned, and the truth."""

import json
import random
from collections import Counter

from streamlda.model.topic_model import load
from streamlda.settings.build import public_words
from streamlda.settings.load import load_settings
from streamlda.storage.merge import merge_checkpoints
from streamlda.storage.partitions import count_saved
from tests.service.long_stream import topic_settings

POISON = {
    b"{": "not-json",
    b"\xff\xff": "not-utf8",
    b'{"text": 3}': "not-text",
    b"[]": "not-an-object",
}


class Shared:
    """Settings of daemons that share a topic and a folder, and what they have learned."""

    def __init__(self, folder, bootstrap, topic):
        self.folder, self.topic, self.bootstrap = folder, topic, bootstrap
        self.path = folder / "shared"

    def settings(self, name, **more):
        given = {
            "checkpoint.folder": str(self.path),
            "output.folder": str(self.folder / "snapshots"),
            "kafka.partitions": "group",
            "kafka.group": self.topic,
            "checkpoint.interval": "0.5 s",
            "topics.refine": False,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return topic_settings(self.folder / name, self.bootstrap, self.topic, **given)

    def records(self):
        return sum(count_saved(self.path).values()) if self.path.exists() else 0

    def learned(self):
        """Return documents, tokens and rejects of all partitions."""
        merged = merge_checkpoints([*count_saved(self.path)])
        rejects = Counter()
        for checkpoint in merged.checkpoints:
            assert checkpoint.skipped == ()
            rejects.update(checkpoint.about["counts"]["rejects"])
        return merged.engine.documents_seen, merged.engine.counters.tokens_seen, rejects

    def snapshots(self):
        paths = sorted((self.folder / "snapshots").glob("snapshot-??????"))
        return [load(path) for path in paths]


class Truth:
    """Sends documents and poison, and knows what is to come of them."""

    def __init__(self, topics, topic, settings, seed=1):
        self._topics, self._topic, self._random = topics, topic, random.Random(seed)
        flags = {name: str(value) for name, value in settings.items()}
        self._words = public_words(load_settings(environment={}, flags=flags))
        self.records, self.rejects, self._sent = 0, Counter(), []

    def send(self, documents, partition, poison=0.02):
        values = []
        for document in documents:
            values.append(json.dumps({"text": document}).encode())
            if self._random.random() < poison:
                values.append(self._random.choice(list(POISON)))
                self.rejects[POISON[values[-1]]] += 1
        self._topics.send(self._topic, values, partition)
        self.records += len(values)
        self._sent += documents

    def learned(self):
        batch = self._words.encode(self._sent).batch
        usable = batch.where(batch.usable)
        return usable.n_documents, int(usable.lengths.sum()), self.rejects


def none_ended(daemons):
    for daemon in daemons:
        assert daemon.process.poll() is None, b"".join(daemon.raw[-20:]).decode()
