"""Making and filling topics on a real broker."""

import time

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from connectors.kafka import KafkaSource


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, reconnect_backoff_max_ms=200)
        self._producers: dict[str | None, KafkaProducer] = {}

    def make(self, topic: str, n_partitions: int = 1, **configs: str) -> None:
        options = {"num_partitions": n_partitions, "replication_factor": 1, "configs": configs}
        self.admin.create_topics({topic: options}, wait_for_metadata=True)

    def send(self, topic, values, partition=0, *, compression=None, headers=(), key=b"key"):
        """Append values (bytes or None) in order, and wait until the broker has them."""
        if compression not in self._producers:
            self._producers[compression] = KafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=compression,
                max_request_size=20 * 2**20,
                linger_ms=5,
                metadata_max_age_ms=300,
                reconnect_backoff_max_ms=200,
            )
        producer = self._producers[compression]
        sent = [
            producer.send(topic, value, key=key, partition=partition, headers=list(headers))
            for value in values
        ]
        producer.flush(30)
        return [future.get(30).offset for future in sent]

    def remove_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete the records before `offset`, as retention does."""
        self.admin.delete_records({TopicPartition(topic, partition): offset})

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close(timeout=5)
        self.admin.close()


def read(source: KafkaSource, n_records: int, seconds: float = 20.0, max_documents: int = 1000):
    """Poll until `n_records` have come; returns texts, rejects and the number of gaps."""
    texts, rejects, n_gaps = [], [], 0
    deadline = time.monotonic() + seconds
    while len(texts) + n_gaps < n_records:
        assert time.monotonic() < deadline, f"{len(texts)} texts and {n_gaps} gaps came"
        poll = source.poll(max_documents, 0.5)
        poll.check(max_documents)
        texts += poll.texts
        rejects += poll.rejects
        n_gaps += len(poll.gaps)
    assert len(texts) + n_gaps == n_records
    return texts, rejects, n_gaps
