"""Making, filling and reading topics on a real broker."""

import time
from contextlib import contextmanager

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

#: Above the largest message of the tests; the broker has a limit of its own.
MAX_REQUEST_BYTES = 80 * 2**20

#: No wait of a test ends before, on however slow or busy a machine, unless something is wrong.
SECONDS = 300.0


class Topics:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, reconnect_backoff_max_ms=200)
        self._producers = {}

    def make(self, topic, n_partitions=1, **configs):
        options = {"num_partitions": n_partitions, "replication_factor": 1, "configs": configs}
        self.admin.create_topics({topic: options}, wait_for_metadata=True)

    def fill(self, topic, *values, **options):
        """Make a topic with a partition for each of some lists of values, and send them."""
        self.make(topic, len(values))
        for number, each in enumerate(values):
            self.send(topic, each, number, **options)

    def change(self, topic, **configs):
        """Change settings of a topic; takes effect within moments."""
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])

    def send(self, topic, values, partition=0, *, compression=None, key=b"key"):
        """Append values (bytes or None) in order, and wait until the broker has them."""
        if compression not in self._producers:
            self._producers[compression] = KafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=compression,
                max_request_size=MAX_REQUEST_BYTES,
                batch_size=2**18,
                linger_ms=5,
                metadata_max_age_ms=300,
                reconnect_backoff_max_ms=200,
            )
        producer = self._producers[compression]
        # A partition that was just added comes with the next look at the cluster.
        wait_until(lambda: partition in producer.partitions_for(topic))
        sent = [producer.send(topic, value, key=key, partition=partition) for value in values]
        producer.flush(SECONDS)
        return [future.get(SECONDS).offset for future in sent]

    @contextmanager
    def transaction(self, topic, *values, end="commit"):
        """Append values in one transaction, which is open inside, then committed or aborted."""
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=topic)
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value, key=b"key", partition=0)
        producer.flush(SECONDS)
        yield
        getattr(producer, f"{end}_transaction")()
        producer.close(timeout=60)

    def transact(self, topic, *values, end="commit"):
        with self.transaction(topic, *values, end=end):
            pass

    def read(self, topic, n_partitions=1, **options):
        """Return all records of a topic, partition after partition, as the client has them."""
        parts = [TopicPartition(topic, number) for number in range(n_partitions)]
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="none",
            enable_auto_commit=False,
            metrics_enabled=False,
            **options,
        )
        consumer.assign(parts)
        end = consumer.end_offsets(parts)
        for part, at in consumer.beginning_offsets(parts).items():
            consumer.seek(part, at)
        rows = {part: [] for part in parts}
        deadline = time.monotonic() + SECONDS
        while any(consumer.position(part) < end[part] for part in parts):
            assert time.monotonic() < deadline
            for part, found in consumer.poll(500, 5000).items():
                rows[part] += found
                deadline = time.monotonic() + SECONDS
        consumer.close()
        return [row for part in parts for row in rows[part]]

    def remove(self, topic):
        # One that looks for the topic once more makes it again.
        for producer in self._producers.values():
            producer.close(timeout=60)
        self._producers.clear()
        self.admin.delete_topics([topic])
        wait_until(lambda: topic not in self.admin.list_topics())

    def remove_before(self, topic, offset, partition=0):
        self.admin.delete_records({TopicPartition(topic, partition): offset})

    def close(self):
        for producer in self._producers.values():
            producer.close(timeout=60)
        self.admin.close()


def wait_until(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read(source, n_records, seconds=SECONDS, max_records=1000):
    """Poll until `n_records` have come; returns texts, rejects and records without a document."""
    texts, rejects, n_without = [], [], 0
    deadline = time.monotonic() + seconds
    while len(texts) + n_without < n_records:
        assert time.monotonic() < deadline, f"{len(texts)} texts and {n_without} others came"
        batch = source.poll(max_records, 0.5)
        batch.check(max_records)
        texts += batch.documents
        rejects += batch.rejects
        n_without += batch.n_records - batch.n_documents
    assert len(texts) + n_without == n_records
    return texts, rejects, n_without
