"""Documents in the records of a Kafka topic, at offsets that the caller stores.

Reading: ``source`` has the connector, ``reader`` keeps it at its offsets, ``decoding`` makes
documents of records (with ``registry`` and ``schemas`` of those that have a schema, with
``letters`` of dead letters), ``share`` says which partitions are ours. Writing: ``dead_letters``,
and ``values`` for snapshots. Both, in transactions: ``exchange``. ``client``
has what is read and written, and how to reach the brokers; ``consumer`` and ``producer`` are all
that is asked of the package kafka-python, ``connection`` is how it connects and what its errors
mean; ``security`` has the settings of TLS and SASL.
"""

from streamlda_connectors.kafka.client import Record
from streamlda_connectors.kafka.dead_letters import DeadLetters
from streamlda_connectors.kafka.exchange import KafkaExchange
from streamlda_connectors.kafka.registry import Registry
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.source import KafkaSource
from streamlda_connectors.kafka.writing import SnapshotTopic

__all__ = [
    "DeadLetters",
    "KafkaExchange",
    "KafkaSource",
    "Record",
    "Registry",
    "Security",
    "SnapshotTopic",
]
