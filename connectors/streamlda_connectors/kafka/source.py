"""The connector itself: polls a topic, owns its offsets, and turns records into documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from streamlda.checks import one_of
from streamlda.stream.source import Position, Progress, RecordBatch
from streamlda_connectors.checks import check, check_open
from streamlda_connectors.kafka.client import ClientSettings
from streamlda_connectors.kafka.decoding import Decoding, OnReject
from streamlda_connectors.kafka.group import Assignment, GiveUp, GroupMember
from streamlda_connectors.kafka.partitions import Share, Standing
from streamlda_connectors.kafka.reader import TopicReader
from streamlda_connectors.kafka.registry import Registry
from streamlda_connectors.kafka.security import Security, check_names
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import BatchBuilder

#: Of partitions that the members of a consumer group share.
GROUP = "group"

#: Options of `ReadOptions.of`; others are those of the client.
READING = (
    *(
        "text_field",
        "records_field",
        "user_field",
        "time_field",
        "time_format",
        "id_field",
        "encoding",
    ),
    "max_document_bytes",
)

#: Most records taken from the client at once.
MAX_FETCHED = 1000


class KafkaSource(TopicReader):
    """Read documents from the partitions of a topic, from offsets that the caller keeps.

    The position of a source is in `position` alone, to be stored together with what was made of the
    documents: each record is then counted once, whatever dies. Every offset passed is one record of
    a poll: a document, a reject, or a blank (a tombstone, a blank value, a record that compaction
    removed or a transaction aborted, a mark of a transaction).

    Within a partition the order is that of the log, between partitions that of arrival. While the
    brokers are away polls are empty. After an error the next poll tries again behind the last
    record handed out. Memory O(brokers * `fetch_max_bytes` + one batch of the producer + one poll);
    with `fixed_order` a fetch of each partition. Not safe for several threads.

    Parameters
    ----------
    topic : str
        The topic; it must exist.
    bootstrap_servers : str
        ``host:port``, several with commas.
    partitions : "all", "i/n", "group" or sequence of int, default "all"
        What to read. Of ``"all"`` and ``"i/n"`` (rest i when divided by n), new partitions are
        picked up, from their first record, up to `refresh_seconds` after they are made.
    start : {"earliest", "latest"}, default "earliest"
        Where to begin without a position.
    format : {"jsonl", "text", "registry"}, default "jsonl"
        ``"jsonl"`` has the text in `text_field`; ``"text"`` is nothing but the text, in UTF-8;
        ``"registry"`` is Avro or JSON, as the schema says whose id each value names.
    registry : mapping of the attributes of `Registry`, optional
        Where the schemas of the format ``"registry"`` are. While it is away and a schema is needed,
        polls raise `SourceAwayError`, and the record is not passed.
    allow_gaps : bool, default False
        Continue where the log no longer holds the next record (retention, truncation), and log and
        count what is lost. Otherwise that is an error.
    fixed_order : bool, default False
        Read the partitions in rounds, 64 offsets of each, in the order of their numbers: what comes
        n-th follows from the first offsets alone. A partition that has no record yet holds up the
        others; new partitions are left out. Not with `allow_gaps`.
    on_reject : callable, optional
        Gets every skipped record and its reason. If it raises, the record is not skipped: the poll
        brings what came before it, or raises the same if that is nothing.
    group : str, optional
        Consumer group in which `commit` shows offsets.
    security : mapping of the attributes of `Security`, optional
        TLS and SASL.
    give_up : callable, optional
        Partitions are then read once they are taken (`take`), and `assigned` says which are ours:
        those of `partitions`, or, where that is ``"group"``, those that the members of `group`
        have agreed on. It is called, from another thread, with partitions that others are to have,
        which wait until it returns.
    **options
        `time_format`, and as in `streamlda_connectors.options.ReadOptions`, where a `time_field` of
        ``"@record"`` is the time that the broker keeps with each record; and as in
        `streamlda_connectors.kafka.client.ClientSettings`.

    Raises
    ------
    SourceError
        If the brokers or the registry cannot be reached or refuse, or the topic or a partition does
        not exist.
    InvalidSettingError, MissingExtraError
        For an option out of range; if the extra `kafka` or `registry` is not installed.
    """

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str,
        partitions: str | Sequence[int] = "all",
        start: str = "earliest",
        format: str = "jsonl",
        registry: Registry | Mapping[str, Any] | None = None,
        allow_gaps: bool = False,
        fixed_order: bool = False,
        on_reject: OnReject | None = None,
        group: str | None = None,
        security: Security | Mapping[str, Any] | None = None,
        give_up: GiveUp | None = None,
        **options: Any,
    ) -> None:
        one_of(("earliest", "latest"), start=start)
        clash = {"fixed_order": fixed_order, "allow_gaps": allow_gaps}
        check(not (fixed_order and allow_gaps), "fixed order", **clash)
        given = {name: options.pop(name) for name in READING if name in options}
        self._options = ReadOptions.of(**given)
        check_names(ClientSettings, options)
        connection = ClientSettings(
            bootstrap_servers, topic, group, security=Security.of(security), **options
        )
        schemas = None if registry is None else Registry.of(registry)
        self._decoding = Decoding(topic, format, self._options, on_reject, schemas)
        joins = partitions == GROUP
        complete = not joins or (give_up is not None and group)
        check(complete, "member", partitions=partitions, group=group)
        self._group, self._start, self.settings = group, start, connection
        super().__init__(
            # The group takes offsets of its members alone.
            replace(connection, group=None) if joins else connection,
            Share("all" if joins else partitions),
            start=start,
            allow_gaps=allow_gaps,
            fixed_order=fixed_order,
            taken=give_up is not None,
        )
        self._member: GroupMember | None = None
        if joins:
            assert give_up is not None
            try:
                self._member = GroupMember(connection, give_up)
            except BaseException:
                super().close()
                raise

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for one.

        With `max_records` of 0 it brings nothing, and looks after the connection.
        """
        batch = self.gather(max_records, timeout_seconds)
        batch.notes += self._options.read_time.take_notes()
        return batch.build(exhausted=False, **self._options.known)

    def gather(self, max_records: int, timeout_seconds: float) -> BatchBuilder:
        """Return what `poll` makes a batch of."""
        check_open(self._closed)
        # The checks of a batch; only its number of records may be 0.
        batch = BatchBuilder(max_records or 1, timeout_seconds)
        if max_records == 0:
            self._fetch(timeout_seconds, 0, recover=True)
            return batch
        while True:
            pending, next_ = self._pending, self._next
            if not self._paused and not self._decoding.take(batch, pending, next_):
                break
            if batch.full:
                break
            wait = 0.0 if not batch.empty else max(0.0, batch.deadline - monotonic())
            # What was gathered goes out before a fault is raised; the next poll meets it again.
            room = min(MAX_FETCHED, batch.room)
            fetched = self._fetch(wait, room, recover=batch.empty)
            if not fetched and (batch.late or not batch.empty):
                break
        return batch

    def assigned(self) -> Assignment:
        """Return which partitions are ours."""
        check_open(self._closed)
        if self._member is not None:
            return self._member.assigned()
        client = self._client or self._rebuild()
        return Assignment(frozenset(self._share.of(client.partitions())))

    def take_committed(self) -> None:
        """Read partitions that are new to this member, from the offsets of the group on."""
        assert self._member is not None
        new = self._member.assigned().partitions - self._next.keys()
        if not new:
            return
        client = self._client or self._rebuild()
        known = self._member.committed(set(new))
        bounds = client.bounds(set(new) - known.keys())
        begins = {n: b.first if self._start == "earliest" else b.end for n, b in bounds.items()}
        offsets = self._next | known | begins
        self._move(client, Standing(offsets, dict(self._lost), dict(self._gaps)))

    def membership(self) -> Any:
        """Return what shows the brokers that this member still is one."""
        return None if self._member is None else self._member.membership()

    def confirm(self, partition: int) -> bool:
        """Return whether the brokers know us as a member of the current group, by a commit."""
        return self._member is None or self._member.confirm(partition)

    def progress(self) -> Progress:
        """Return the sum of all next offsets; a topic has no end."""
        return Progress(sum(self._next.values()), None, "documents")

    def silent(self) -> float | None:
        """Return the silence as of `TopicReader`, or that of the group if it is longer."""
        found = super().silent()
        apart = 0.0 if self._member is None else self._member.silent()
        return max(found or 0.0, apart) or found

    def reason(self) -> str:
        """Return why brokers that are `silent` do not answer, as of `TopicReader`."""
        apart = self._member is not None and not super().silent() and self._member.silent()
        return self._member.reason() if apart and self._member else super().reason()

    def commit(self, position: Position, note: str = "") -> None:
        """Show the offsets of a durable `position` under `group`, and a note; none is read back."""
        check(self._group, "group to show", group=None)
        shown = self._member or self._client
        if shown is not None:
            shown.commit({int(n): at for n, at in position["offsets"].items()}, note)

    def close(self) -> None:
        """Close the connections, and leave the group. Closing twice is allowed."""
        if self._member is not None:
            self._member.close()
        super().close()
