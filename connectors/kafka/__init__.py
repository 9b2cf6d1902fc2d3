"""Documents in the records of a Kafka topic, at offsets that the caller stores.

``source`` has the connector, ``client`` what it asks of a client library, ``kafka_python`` the one
in use, ``security`` the settings of TLS and SASL, ``corrupt`` the way past damaged batches.
"""

from connectors.kafka.client import Record
from connectors.kafka.security import Security
from connectors.kafka.source import KafkaSource

__all__ = ["KafkaSource", "Record", "Security"]
