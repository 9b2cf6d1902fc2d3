"""Which package reads: a client of the one that the settings name."""

from __future__ import annotations

from streamlda_connectors.kafka.client import Client, ClientSettings
from streamlda_connectors.kafka.confluent import ConfluentClient
from streamlda_connectors.kafka.kafka_python import KafkaPythonClient


def connected(settings: ClientSettings) -> Client:
    """Connect with the package of the settings."""
    if settings.client == "confluent":
        return ConfluentClient(settings)
    return KafkaPythonClient(settings)
