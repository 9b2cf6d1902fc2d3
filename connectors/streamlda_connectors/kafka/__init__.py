"""Documents in the records of a Kafka topic, at offsets that the caller stores.

Reading: ``source`` has the connector, ``reader`` keeps it at its offsets, ``decoding`` makes
documents of records, ``share`` says which partitions are ours, ``corrupt`` is the way past damaged
batches, ``client`` is what a client library must do. Writing: ``dead_letters``, ``snapshots``,
``site_shares`` (which are read back too), ``values``, what the last two have in common, and
``producer``, what a library must do. ``kafka_python``, ``kafka_python_producer`` and ``package``
are the library in use; ``security`` has the settings of TLS and SASL.
"""

from streamlda_connectors.kafka.client import Record
from streamlda_connectors.kafka.dead_letters import DeadLetters
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.site_shares import ShareTopic
from streamlda_connectors.kafka.snapshots import SnapshotTopic
from streamlda_connectors.kafka.source import KafkaSource

__all__ = ["DeadLetters", "KafkaSource", "Record", "Security", "ShareTopic", "SnapshotTopic"]
