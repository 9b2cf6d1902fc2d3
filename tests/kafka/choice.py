"""Which broker the tests run on: a given one, Apache Kafka, or else kfake; never silently.

STREAMLDA_KAFKA_BOOTSTRAP names a running broker for all tests but those that stop or damage one.
STREAMLDA_TEST_BROKER, apache or kfake, forces the broker that is started; without it, it is Apache
Kafka if that can be had, and kfake if not. ``python -m tests.kafka.choice`` fetches what is needed.
"""

import os
from dataclasses import dataclass

from tests.cache import cache_folder, remember_failure, remembered_failure
from tests.kafka.jars import (
    BrokerUnavailable,
    jars_folder,
    java,
    kafka_jars,
    kafka_version,
    program,
)
from tests.kafka.kfake.build import kfake_path, kfake_program

KINDS = ("apache", "kfake")


@dataclass(frozen=True)
class Choice:
    """What the tests run on.

    `kind` is what is started, None if neither can be had. `why` says why it is not Apache Kafka.
    """

    kind: str | None
    why: str = ""
    given: str | None = None

    def __str__(self):
        names = {"apache": f"Apache Kafka {kafka_version()}", "kfake": "kfake", None: "none"}
        # On one line, whatever a program said.
        own = names[self.kind] + (f", because {' '.join(self.why.split())}" if self.why else "")
        if not self.given:
            return own
        return f"STREAMLDA_KAFKA_BOOTSTRAP={self.given}; to be stopped and damaged: {own}"

    def runs(self, *, needs_real, needs_own):
        """Return whether a test can run; without any broker it does, to fail and say why."""
        if self.kind != "kfake" or not needs_real:
            return True
        return self.given is not None and not needs_own


class NotReadyError(Exception):
    """Something must be fetched before it is known which broker there is."""


def choose(*, fetch, cache=None):
    """Return what to run on; with `fetch`, what that takes is fetched and built first."""
    cache = cache or cache_folder()
    given = os.environ.get("STREAMLDA_KAFKA_BOOTSTRAP") or None
    forced = os.environ.get("STREAMLDA_TEST_BROKER", "")
    if forced and forced not in KINDS:
        raise BrokerUnavailable(
            f"STREAMLDA_TEST_BROKER must be apache or kfake, got {forced!r}; set one, or unset it"
        )
    if forced == "apache":
        return Choice("apache", given=given)
    why = "STREAMLDA_TEST_BROKER=kfake" if forced else why_not_apache(cache, fetch=fetch)
    if not why:
        return Choice("apache", given=given)
    if not fetch and not kfake_path(cache).exists():
        raise NotReadyError
    try:
        kfake_program(cache)
    except BrokerUnavailable as error:
        return Choice(None, f"{why}; nor is there kfake: {error}", given)
    return Choice("kfake", why, given)


def why_not_apache(cache, *, fetch):
    """Return why Apache Kafka cannot be had, empty if it can."""
    try:
        java()
        if jars_folder(cache).exists():
            return ""
        program("mvn")
    except BrokerUnavailable as error:
        return str(error)
    if known := remembered_failure(cache, "kafka"):
        return known
    if not fetch:
        raise NotReadyError
    try:
        kafka_jars(cache)
    except BrokerUnavailable as error:
        remember_failure(cache, "kafka", str(error))
        return str(error)
    return ""


if __name__ == "__main__":
    print(f"The Kafka tests run on {choose(fetch=True)}")
