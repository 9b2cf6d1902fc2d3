"""Documents in the records of a Kafka topic, at offsets that the caller stores.

Reading: ``source`` has the connector, ``partitions`` its records, their order and positions,
``decoding`` makes documents of records (with ``registry`` of those that have a schema), ``group``
shares partitions with others, ``consumer`` asks kafka-python. ``writing`` has snapshots and dead
letters, ``exchange`` answers documents of a group in transactions. ``connection`` connects and
names causes of errors, by ``security``; ``web`` asks servers for tokens and schemas.
"""

from streamlda_connectors.kafka.exchange import KafkaExchange
from streamlda_connectors.kafka.partitions import Record
from streamlda_connectors.kafka.registry import Registry
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.source import KafkaSource
from streamlda_connectors.kafka.writing import DeadLetters, SnapshotTopic

__all__ = [
    "DeadLetters",
    "KafkaExchange",
    "KafkaSource",
    "Record",
    "Registry",
    "Security",
    "SnapshotTopic",
]
