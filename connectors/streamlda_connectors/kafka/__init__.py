"""Documents in the records of a Kafka topic, at offsets that the caller stores.

Reading: ``source`` has the connector, ``reader`` keeps it at its offsets, ``partitions`` says which
are ours and in what order, ``decoding`` makes documents of records (with ``registry`` of those that
have a schema), ``group`` shares partitions with others. ``writing`` has snapshots and dead letters,
``exchange`` answers documents of a group in transactions. ``client`` has what is read, ``consumer``
asks kafka-python for it. ``connection`` connects and names causes of errors, by ``security``.
"""

from streamlda_connectors.kafka.client import Record
from streamlda_connectors.kafka.exchange import KafkaExchange
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
