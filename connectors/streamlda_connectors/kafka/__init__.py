"""Documents in the records of a Kafka topic, at offsets that the caller stores.

Reading: ``source`` has the connector, ``partitions`` its records, their order and positions,
``decoding`` makes documents of records, also by schemas of a registry, ``consumer`` asks
kafka-python, and shares partitions with others. ``writing`` has dead letters and, in transactions,
answers to documents of a group. ``connection`` connects and names causes of errors;
``security`` has logins, and asks servers for tokens and schemas.
"""

from streamlda_connectors.kafka.decoding import Registry
from streamlda_connectors.kafka.partitions import Record
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.source import KafkaSource
from streamlda_connectors.kafka.writing import DeadLetters, KafkaExchange

__all__ = ["DeadLetters", "KafkaExchange", "KafkaSource", "Record", "Registry", "Security"]
