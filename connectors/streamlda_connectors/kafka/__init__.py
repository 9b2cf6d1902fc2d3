"""Documents in the records of a Kafka topic, at offsets that the caller stores."""

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
