"""Documents in the records of a Kafka topic, at offsets that the caller stores.

Reading: ``source`` has the connector, ``reader`` keeps it at its offsets, ``partitions`` says which
are ours and in what order, ``decoding`` makes documents of records (with ``registry`` of those that
have a schema), ``group`` shares partitions with others. ``writing`` has snapshots and dead letters,
``exchange`` answers documents of a group in transactions.
``client`` has what is read, and how to reach the brokers; ``consumer`` is all that is asked of the
package kafka-python for reading, ``connection`` is how it connects and what its errors mean;
``security`` has the settings of TLS and SASL.
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
