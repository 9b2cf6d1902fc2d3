"""Reading by the package confluent-kafka, which fetches, checks and unpacks in threads of its own.

The package stands on librdkafka. Its consumer answers neither which topic it reads nor whether a
fetch was answered: an admin client tells the first, and the statistics that it makes every quarter
of a second tell the second.
"""

from __future__ import annotations

import json
import logging
from base64 import urlsafe_b64decode
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import groupby
from time import monotonic
from typing import Any
from uuid import UUID

from streamlda.checks import require
from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    SourceError,
    SourceRefusedError,
    StreamLDAError,
)
from streamlda_connectors.kafka.client import (
    Bounds,
    Broken,
    ClientSettings,
    Identity,
    OutOfRange,
    Record,
    Run,
    Truncated,
)
from streamlda_connectors.kafka.connecting import milliseconds, refusal, tls_context
from streamlda_connectors.kafka.fetches import Fetches

logger = logging.getLogger(__name__)
#: What the package itself logs: the state of connections.
package_logger = logging.getLogger("confluent_kafka")

#: How often the package says how it fares, in milliseconds.
STATISTICS_MS = 250

#: How soon it fetches again after its queue was full; at its default of a second the queue of a
#: fast reader is empty most of the time.
BACKOFF_MS = 10

#: How long a wait for an answer goes on before errors of the connection are looked at, in seconds.
LOOK_SECONDS = 0.05

#: Least and most that the package lets a fetch bring; a single larger record is still read.
LEAST_FETCH_BYTES, MOST_FETCH_BYTES = 1000, 2**31 - 1 - 512

#: Errors that say who may do what.
ACCESS = (
    *("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED"),
    *("GROUP_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"),
    "_AUTHENTICATION",
)
#: Errors that say that brokers do not answer, or not yet.
AWAY = (
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_SSL", "_WAIT_COORD"),
    *("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
    *(
        "NOT_COORDINATOR",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "BROKER_NOT_AVAILABLE",
    ),
    *("NETWORK_EXCEPTION", "OFFSET_NOT_AVAILABLE"),
)
NOT_CONFIGURED = ("_INVALID_ARG", "_NOT_CONFIGURED", "_NOT_IMPLEMENTED")


def load() -> Any:
    """Return the package, or raise `MissingExtraError`."""
    if find_spec("confluent_kafka") is None:
        raise MissingExtraError("confluent-kafka", "confluent", "reading from Kafka")
    import confluent_kafka.admin

    return confluent_kafka


def connection(settings: ClientSettings) -> dict[str, Any]:
    """Return the options that all classes of the package take; secrets are read now."""
    security, timeout = settings.security, milliseconds(settings.request_timeout_seconds)
    if security.tls:
        # The files are checked as for the other package, with the same errors.
        tls_context(security)
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "client.id": settings.client_id,
        "socket.timeout.ms": min(300_000, max(10, timeout)),
        "socket.connection.setup.timeout.ms": max(1000, timeout),
        "reconnect.backoff.max.ms": 1000,
        "topic.metadata.refresh.interval.ms": min(
            3_600_000, max(10, milliseconds(settings.refresh_seconds))
        ),
        "security.protocol": security.protocol,
        "ssl.ca.location": security.ca_file,
        "ssl.certificate.location": security.certificate_file,
        "ssl.key.location": security.key_file,
        "ssl.key.password": security.key_password(),
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password(),
    }
    return {name: value for name, value in options.items() if value is not None}


class ConfluentClient:
    """One ``Consumer`` of one topic, connected when it is made; used from one thread.

    Does what `KafkaPythonClient` does, and raises as it does. It unpacks what it fetches ahead, so
    it may hold `fetch_max_bytes` of each broker unpacked beside a queue of `fetch_max_bytes`.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._kafka = kafka = load()
        self._assigned: dict[int, Any] = {}
        self._paused = False
        self._still = set[int]()  # Those that are not fetched.
        self._closed = False
        #: The error of a connection that no waiting will mend, and what the next poll raises.
        self._no_access: Any = None
        self._fault: Exception | None = None
        #: Where each partition goes on.
        self._next: dict[int, int] = {}
        #: The last question which topic has the name; asked again when metadata are new.
        self._question: Any = None
        self._metadata_age: int | None = None
        #: By broker its fetches, by partition its broker, and when records came of it.
        self._brokers: dict[int, Fetches] = {}
        self._leaders: dict[int, int] = {}
        self._came: dict[int, float] = {}
        try:
            options = connection(settings) | {"error_cb": self._note_error}
            self._admin = kafka.admin.AdminClient(options, logger=package_logger)
            self._identity, self._partitions = self._describe()
            self._consumer = kafka.Consumer(self._consuming(), logger=package_logger)
        except StreamLDAError:
            raise
        except kafka.KafkaException as error:
            raise self._refused("be reachable", error.args[0]) from error
        except (OSError, ValueError) as error:
            raise refusal(
                settings, "be reachable", type(error).__name__, SourceAwayError
            ) from error

    def _consuming(self) -> dict[str, Any]:
        settings = self._settings
        most = min(max(LEAST_FETCH_BYTES, settings.fetch_max_bytes), MOST_FETCH_BYTES)
        return {
            **connection(settings),
            # The package cannot do without a name. Nothing is read or shown under it.
            "group.id": settings.group or settings.client_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": (
                "read_committed" if settings.read_committed else "read_uncommitted"
            ),
            "fetch.max.bytes": most,
            # Of what is written; nothing is, but it must not be above the one before.
            "message.max.bytes": min(1_000_000, most),
            "max.partition.fetch.bytes": min(settings.max_partition_fetch_bytes, 1_000_000_000),
            "queued.max.messages.kbytes": max(1, min(2_097_151, most // 1024)),
            "fetch.queue.backoff.ms": BACKOFF_MS,
            "fetch.wait.max.ms": min(500, milliseconds(settings.request_timeout_seconds) // 2),
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._note_statistics,
            "error_cb": self._note_error,
            "on_commit": _log_commit,
        }

    def _describe(self) -> tuple[Identity, set[int]]:
        name, admin = self._settings.topic, self._admin
        asked = admin.describe_cluster(request_timeout=self._settings.request_timeout_seconds)
        cluster = self._answer(admin, asked).cluster_id
        problem, found = "", None
        try:
            found = self._answer(admin, self._ask())
        except self._kafka.KafkaException as error:
            if self._is(error.args[0], AWAY):
                raise
            problem = error.args[0].name()
        require(
            found is not None and found.partitions,
            "a topic must exist and be readable",
            topic=name,
            error_code=problem,
            remedy="create it, or correct its name or access rules",
            error=SourceError,
        )
        assert found is not None
        partitions = {partition.id for partition in found.partitions}
        return Identity(str(cluster), name, _topic_id(found)), partitions

    def _ask(self) -> Any:
        """Ask which topic has the name."""
        names = self._kafka.TopicCollection([self._settings.topic])
        timeout = self._settings.request_timeout_seconds
        (asked,) = self._admin.describe_topics(names, request_timeout=timeout).values()
        return asked

    def _check_topic(self) -> None:
        """Raise `Broken` if another topic has the name: nothing else tells, if it is longer."""
        asked = self._question
        if asked is None or not asked.done():
            return
        self._question = None
        if (error := asked.exception()) is None:
            if _topic_id(asked.result()) != self._identity.topic_id:
                raise Broken("another topic of this name")
        elif self._is(error.args[0], ("UNKNOWN_TOPIC_OR_PART",)):
            # The package waits for it without a word.
            raise Broken(error.args[0].name())
        # What else cannot be answered now is asked again, and shows elsewhere.

    def _answer(self, admin: Any, future: Any) -> Any:
        """Return what a request brings, or raise at once if the brokers let nobody in."""
        deadline = monotonic() + 2 * self._settings.request_timeout_seconds
        while not future.done() and self._no_access is None and monotonic() < deadline:
            # Errors of the connection come this way.
            admin.poll(LOOK_SECONDS)
        if self._no_access is not None:
            raise self._kafka.KafkaException(self._no_access)
        return future.result(LOOK_SECONDS)

    def _is(self, error: Any, names: Sequence[str]) -> bool:
        return error.code() in {getattr(self._kafka.KafkaError, name) for name in names}

    def _refused(self, rule: str, error: Any) -> StreamLDAError:
        """Return the error for brokers that do not do what they must."""
        kind: type[SourceError] = SourceError
        if self._is(error, ("_SSL",)) and self._no_access is not None:
            rule, kind = "have a trusted certificate", SourceAccessError
        elif self._is(error, ACCESS):
            kind = SourceAccessError
        elif self._is(error, NOT_CONFIGURED):
            kind = SourceRefusedError
        elif self._is(error, AWAY) or error.retriable():
            kind = SourceAwayError
        return refusal(self._settings, rule, error.name(), kind)

    def _note_error(self, error: Any) -> None:
        # All others are tried again by the package, and known by the answers that do not come.
        untrusted = self._is(error, ("_SSL",)) and "certificate" in error.str()
        if untrusted or self._is(error, ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")):
            self._no_access = error

    def _note_statistics(self, said: str) -> None:
        found, now = json.loads(said), monotonic()
        for broker in found["brokers"].values():
            if broker["nodeid"] >= 0:
                self._brokers.setdefault(broker["nodeid"], Fetches()).note(broker, now)
        topic = found["topics"].get(self._settings.topic, {"partitions": {}})
        age, before = topic.get("metadata_age"), self._metadata_age
        self._metadata_age = age
        if None not in (age, before) and age < before and self._question is None:
            self._question = self._ask()
        for part in topic["partitions"].values():
            if part["partition"] >= 0 and not part["unknown"]:
                self._partitions.add(part["partition"])
                self._leaders[part["partition"]] = part["broker"]

    def answered(self) -> dict[int, float | None]:
        """Return when a fetch of each assigned partition was answered last, by `monotonic`."""
        found: dict[int, float | None] = {}
        for number in self._assigned:
            fetches = self._brokers.get(self._leaders.get(number, -1))
            times = (self._came.get(number), None if fetches is None else fetches.answered_at)
            found[number] = max((at for at in times if at is not None), default=None)
        return found

    def identity(self) -> Identity:
        """Return which topic this was when connecting."""
        return self._identity

    def partitions(self) -> set[int]:
        """Return the partitions known now, without waiting; new ones appear later."""
        return set(self._partitions)

    def bounds(self, partitions: set[int]) -> dict[int, Bounds]:
        """Return what the log of each partition holds now."""
        timeout = self._settings.request_timeout_seconds
        try:
            return {
                number: Bounds(*self._consumer.get_watermark_offsets(self._part(number), timeout))
                for number in sorted(partitions)
            }
        except self._kafka.KafkaException as error:
            raise self._refused("tell the offsets of the partitions", error.args[0]) from error

    def _part(self, number: int, *at: Any, **more: Any) -> Any:
        return self._kafka.TopicPartition(self._settings.topic, number, *at, **more)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        self._assigned = {number: self._part(number) for number in offsets}
        self._next, self._still = dict(offsets), set()
        self._consumer.assign([self._part(number, at) for number, at in offsets.items()])
        self.pause(self._paused)

    def poll(self, timeout_seconds: float, max_records: int) -> list[Run]:
        """Return up to `max_records` (at least 1) as they come, or nothing in time."""
        if self._fault is not None:
            raise self._fault
        try:
            rows = self._consumer.consume(max_records, 0)
            if not rows and timeout_seconds > 0 and (row := self._consumer.poll(timeout_seconds)):
                # `consume` would wait for all of them.
                more = self._consumer.consume(max_records - 1, 0) if max_records > 1 else []
                rows = [row, *more]
        except self._kafka.KafkaException as error:
            raise Broken(error.args[0].name()) from error
        self._check_topic()
        if any(row.error() is not None for row in rows):
            rows = self._without_errors(rows)
        numbers = [row.partition() for row in rows]
        runs = []
        for number, places in groupby(range(len(rows)), numbers.__getitem__):
            runs.append(_run(number, [rows[place] for place in places]))
            self._next[number] = runs[-1].offsets[-1] + 1
            self._came[number] = monotonic()
        if self._fault is not None and not runs:
            raise self._fault
        return runs

    def _without_errors(self, rows: list[Any]) -> list[Any]:
        """Return the records before the first fault, and keep it for the next poll.

        Behind it records may be missing, which would count as blanks.
        """
        records = []
        for row in rows:
            error = row.error()
            if error is None:
                records.append(row)
            elif self._is(error, ("_PARTITION_EOF",)):
                # Behind marks of transactions too, which are no records.
                self._next[row.partition()] = row.offset()
            elif (fault := self._fault_of(error)) is not None:
                self._fault = fault
                break
        return records

    def _fault_of(self, error: Any) -> Exception | None:
        """Return what an error among the records means; None if the package goes on by itself."""
        if self._is(error, ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")):
            return OutOfRange()
        if self._is(error, ("_LOG_TRUNCATION",)):
            return Truncated()
        if self._is(error, ("UNSUPPORTED_COMPRESSION_TYPE",)):
            return Broken(error.name())
        if self._is(error, AWAY) or error.retriable():
            return None
        if self._is(error, ("GROUP_AUTHORIZATION_FAILED",)):
            # Of the name that nothing is read under.
            return None if self._settings.group is None else self._refused("allow it", error)
        if self._is(error, ACCESS):
            return self._refused("allow reading", error)
        return Broken(error.name())

    def pause(self, paused: bool, held: Collection[int] = ()) -> None:
        """Stop or go on fetching, as `Client` says; what was fetched ahead is fetched again."""
        self._paused = paused
        still = set(self._assigned) if paused else set(held)
        resume, pause = self._consumer.resume, self._consumer.pause
        for change, numbers in (resume, self._still - still), (pause, still - self._still):
            if parts := [self._assigned[number] for number in numbers & set(self._assigned)]:
                change(parts)
        self._still = still

    def ends(self) -> dict[int, int]:
        """Return the last known end of each partition fetched so far, without waiting."""
        ends = {
            number: self._consumer.get_watermark_offsets(part, cached=True)[1]
            for number, part in self._assigned.items()
        }
        return {number: end for number, end in ends.items() if end >= 0}

    def positions(self) -> dict[int, int]:
        """Return where each partition goes on, behind marks at the end of the log too."""
        return dict(self._next)

    def notes(self, partitions: set[int]) -> list[str]:
        """Return what `commit` left under the group beside the offsets of these partitions."""
        parts = [self._part(number) for number in sorted(partitions)]
        try:
            found = self._consumer.committed(parts, self._settings.request_timeout_seconds)
        except self._kafka.KafkaException as error:
            if self._is(error.args[0], ("GROUP_ID_NOT_FOUND",)):
                return []
            raise self._refused("tell what the group shows", error.args[0]) from error
        return [part.metadata or "" for part in found if part.offset >= 0]

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        """Show `offsets` and a note under the group, without waiting; a failure is only logged."""
        if self._settings.group is None:
            return
        parts = [self._part(number, at, metadata=note) for number, at in offsets.items()]
        try:
            self._consumer.commit(offsets=parts, asynchronous=True)
        except self._kafka.KafkaException as error:
            _log_commit(error.args[0], parts)

    def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        if not self._closed:
            self._closed = True
            self._consumer.close()
            self._admin = self._question = None


def _topic_id(found: Any) -> str:
    return str(UUID(bytes=urlsafe_b64decode(f"{found.topic_id}==")))


def _run(number: int, rows: list[Any]) -> Run:
    return Run(
        number,
        [row.offset() for row in rows],
        [row.value() for row in rows],
        [row.timestamp()[1] for row in rows],
        partial(_record, rows),
    )


def _record(rows: Sequence[Any], index: int) -> Record:
    row = rows[index]
    headers = tuple(row.headers() or ())
    return Record(
        *(row.topic(), row.partition(), row.offset(), row.timestamp()[1]),
        *(row.key(), row.value(), headers),
    )


def _log_commit(error: Any, parts: object) -> None:
    if error is not None:
        logger.warning(
            "offsets could not be shown to the group (%s); nothing is lost by it", error.name()
        )
