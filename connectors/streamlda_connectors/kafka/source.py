"""The connector itself: a topic at offsets of our own, whatever happens to brokers or the log."""

import logging
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from streamlda.errors import SourceError, SourceRefusedError, StreamLDAError, failure, one_of
from streamlda.stream.source import Log, Position, Progress, RecordBatch
from streamlda_connectors.checks import check, check_open, fault, not_a_position
from streamlda_connectors.kafka.connection import NO_ANSWER, milliseconds
from streamlda_connectors.kafka.consumer import Client, GroupMember
from streamlda_connectors.kafka.decoding import OnReject, RecordOptions, Registry
from streamlda_connectors.kafka.partitions import (
    Broken,
    LogTruncation,
    Offsets,
    Rounds,
    Run,
    read_numbers,
    read_position,
)
from streamlda_connectors.kafka.security import ClientSettings, Security
from streamlda_connectors.records import BatchBuilder, ReadOptions

logger = logging.getLogger(__name__)

#: Of partitions that the members of a consumer group share.
GROUP = "group"

#: How often a client is replaced at the same offsets before they count as damaged.
MAX_REBUILDS = 3


class KafkaSource:
    """Read documents from the partitions of a topic, from offsets that the caller keeps.

    The position of a source is in `position` alone, to be stored together with what was made of the
    documents: each record is then counted once, whatever dies. Every offset passed is one record of
    a poll: a document, a reject, or a blank (a tombstone, a blank value, a record that compaction
    removed or a transaction aborted, a mark of a transaction).

    Within a partition the order is that of the log, between partitions that of arrival. While the
    brokers are away polls are empty. After an error the next poll tries again behind the last
    record handed out. Memory O(8 MiB a broker + one batch of the producer + one poll); with
    `fixed_order` a fetch of each partition. Not safe for several threads.

    Parameters
    ----------
    topic : str
        The topic; it must exist.
    bootstrap_servers : str
        ``host:port``, several with commas.
    partitions : "all", "group" or sequence of int, default "all"
        What to read. Of ``"all"``, new partitions are picked up, from their first record, up to
        `refresh_seconds` after they are made. Of ``"group"``, partitions are read once they are
        taken (`take`); `member` says which are ours, and which others are to have.
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
        Consumer group that shares partitions, or in which `commit` shows offsets.
    security : mapping of the attributes of `Security`, optional
        TLS and SASL.
    **options
        `time_format`, and as in `streamlda_connectors.records.ReadOptions`, where a `time_field` of
        ``"@record"`` is the time that the broker keeps with each record; and as in
        `streamlda_connectors.kafka.security.ClientSettings`.

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
        registry: Mapping[str, Any] | None = None,
        allow_gaps: bool = False,
        fixed_order: bool = False,
        on_reject: OnReject | None = None,
        group: str | None = None,
        security: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        one_of(("earliest", "latest"), start=start)
        reading = options.keys() & {"time_format", *ReadOptions.__dataclass_fields__}
        self.options = ReadOptions.of(**{name: options.pop(name) for name in reading})
        self.settings = settings = ClientSettings(
            bootstrap_servers, topic, group, security=Security(**(security or {})), **options
        )
        schemas = None if registry is None else Registry(**registry)
        self._decoding = RecordOptions(topic, format, self.options, on_reject, schemas)
        #: Whether members of the group share the partitions.
        self._joins = joins = partitions == GROUP
        self._listed: set[Any] | None = None if partitions in ("all", GROUP) else set(partitions)
        self._allow_gaps = allow_gaps
        #: Fetched and not taken; dropped, to be fetched again, when the client is replaced.
        self._pending: deque[Run] = deque()
        self._rebuilds = 0
        self._truncated = self._paused = self._closed = False
        #: Of each partition, when its broker answered last, and for how long it did not since.
        self._answered: dict[int, float] = {}
        self._silent: defaultdict[int, float] = defaultdict(float)
        #: What is shown to the group, which takes offsets of its members alone.
        self._client_settings = replace(settings, group=None) if joins else settings
        self._client: Client | None = None
        self.member: GroupMember | None = None
        try:
            self._client = client = Client(self._client_settings)
            self._identity, known = client.identity, client.partitions()
            ours = set() if joins else self._ours(known)
            there = {"topic": topic, "n_partitions": len(known), "partitions": self._name}
            check(joins or (ours and ours >= (self._listed or ours)), "chosen partitions", **there)
            #: Where partitions stand; moved by what takes from `_pending`.
            self._at = Offsets(self._begin(client, ours, start), {}, {})
            client.assign(self._next)
            if joins:
                self.member = GroupMember(settings)
        except BaseException:
            self.close()
            raise
        #: What puts records in order before they are `_pending`, if that is fixed.
        self._rounds = Rounds(self._next) if fixed_order else None
        self._left_out: set[int] = set()

    @property
    def _next(self) -> dict[int, int]:
        return self._at.offsets

    @property
    def _name(self) -> str | list[int]:
        return "all" if self._listed is None else sorted(self._listed)

    def _ours(self, numbers: set[int]) -> set[int]:
        return numbers if self._listed is None else self._listed & numbers

    def _begin(self, client: Client, partitions: set[int], start: str) -> dict[int, int]:
        """Return where partitions begin that have no position."""
        logs, first = client.bounds(partitions), start == "earliest"
        return {n: logs[n].start if first else logs[n].stop for n in sorted(partitions)}

    # Polling.

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for one.

        With `max_records` of 0 it brings nothing. A thread looks after the connection.
        """
        return self.gather(max_records, timeout_seconds).build(self.options)

    def gather(self, max_records: int, timeout_seconds: float) -> BatchBuilder:
        """Return what `poll` makes a batch of."""
        check_open(self._closed)
        # The checks of a batch; only its number of records may be 0.
        batch = BatchBuilder(max_records or 1, timeout_seconds)
        while max_records:
            pending, next_ = self._pending, self._next
            if not self._paused and not self._decoding.take(batch, pending, next_):
                break
            if batch.full:
                break
            wait = 0.0 if not batch.empty else max(0.0, batch.deadline - monotonic())
            # What was gathered goes out before a fault is raised; the next poll meets it again.
            fetched = self._fetch(wait, batch.room, recover=batch.empty)
            if not fetched and (batch.late or not batch.empty):
                break
        return batch

    def _fetch(self, wait: float, room: int, *, recover: bool) -> bool:
        """Add up to `room` records to `_pending` in time; return if any came; recover, or raise."""
        try:
            if self._truncated:
                raise fault("cut log", topic=self.settings.topic, offsets=self._next)
            client = self._client or self._rebuild()
            self._pick_up_partitions(client)
            begun = monotonic()
            if self._rounds is not None:
                client.pause(self._paused, self._waiting)
            fetched = client.poll(wait, room)
            if not self._paused:
                self._listen(client, monotonic() - begun)
            self._take(client, fetched)
        except (Broken, StreamLDAError) as error:
            # Of any kind: a password file may be gone while records wait to be handed out.
            self._drop_client()
            # The log may have grown beyond our offset again: its bounds would not tell.
            self._truncated |= isinstance(error, LogTruncation) and not self._allow_gaps
            if recover and isinstance(error, Broken):
                self._recover(error)
            elif recover:
                raise
            return False
        if fetched:
            self._rebuilds = 0
        return bool(fetched)

    def _take(self, client: Client, runs: Sequence[Run]) -> None:
        """Put fetched records where they are taken from, in order if that is fixed."""
        if self._rounds is None:
            self._pending.extend(runs)
            return
        for run in runs:
            self._rounds.add(run)
        if not runs and not self._pending:
            # The next offsets may hold no record: those of transactions that end there.
            self._rounds.skip_to(client.positions()[self._rounds.turn])
        self._pending.extend(self._rounds.in_order())

    def _pick_up_partitions(self, client: Client) -> None:
        if self._joins:
            return
        new = self._ours(client.partitions()) - self._next.keys() - self._left_out
        if new and self._rounds is not None:
            self._left_out |= new
            why = "topic %s has new partitions %s, which a fixed order leaves out"
            logger.warning(why, self.settings.topic, sorted(new))
        elif new:
            self._go_to(client, self._at._replace(offsets=self._next | dict.fromkeys(new, 0)))
            logger.info("topic %s has new partitions %s", self.settings.topic, sorted(new))

    # Faults: the client is replaced at our own offsets.

    def _recover(self, error: Broken) -> None:
        self._rebuilds += 1
        topic, problem = self.settings.topic, f"{type(error).__name__} {error}"
        if self._rebuilds > MAX_REBUILDS:
            about = {"offsets": self._next, "rebuilds": MAX_REBUILDS, "problem": problem}
            raise fault("records", topic=topic, **about) from error
        logger.warning("the client of topic %s is replaced (%s)", topic, problem)
        self._rebuild()

    def _rebuild(self) -> Client:
        """Make a client at our own offsets, if it still is the same topic and the log has them."""
        client = Client(self._client_settings)
        try:
            found, before = client.identity, self._identity
            ids = {"topic_id": found.topic_id, "topic_id_before": before.topic_id}
            check(found == before, "another topic", topic=self.settings.topic, **ids)
            self._go_to(client, self._at)
            client.pause(self._paused)
        except BaseException:
            client.close()
            raise
        self._client = client
        return client

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        self._drop_fetched()
        if client is not None:
            client.close()

    def _drop_fetched(self) -> None:
        self._pending.clear()
        if self._rounds is not None:
            self._rounds.resume_at(self._next)

    def _go_to(self, client: Client, to: Offsets) -> None:
        """Continue there, or behind what logs do not hold of it; an error changes nothing."""
        logs, moved = client.bounds(set(to.offsets)), Offsets(*map(dict, to))
        for number, at in to.offsets.items():
            if not logs[number].start <= at <= logs[number].stop:
                self._pass_gap(moved, number, logs[number])
        client.assign(moved.offsets)
        # assign() may drop what the client fetched ahead; it is not handed out yet.
        self._at = moved
        self._pending.clear()

    def _pass_gap(self, to: Offsets, number: int, log: range) -> None:
        """Take a partition to what a log holds, and count what is lost."""
        at, topic = to.offsets[number], self.settings.topic
        if not self._allow_gaps:
            raise failure(
                "the log does not hold the next record",
                topic=topic,
                partition=number,
                offset=at,
                log=f"{log.start}..{log.stop}",
                remedy="records were removed before they were read: start with allow_gaps to "
                "continue without them",
                # The end may move on, as after an election of a leader; the first record does not.
                error=SourceError if at > log.stop else SourceRefusedError,
            )
        moved = min(max(at, log.start), log.stop)
        lost = max(0, moved - at)
        why = "gap: topic %s partition %d continues at offset %d, %d records lost"
        logger.warning(why, topic, number, moved, lost)
        to.offsets[number] = moved
        to.gaps[number] = to.gaps.get(number, 0) + moved - at
        if lost:
            to.lost[number] = to.lost.get(number, 0) + lost

    # Pauses and silence.

    def pause(self, paused: bool = True) -> None:
        """Take no records until `resume`. Polls bring nothing, and keep the connection."""
        self._paused = paused
        if self._client is not None:
            self._client.pause(paused)

    def resume(self) -> None:
        """Take records again after `pause`."""
        self.pause(False)

    @property
    def _waiting(self) -> set[int]:
        """Partitions of which records wait for the turn of others; these are not fetched."""
        return set() if self._rounds is None else self._rounds.waiting

    def waits_for(self) -> int | None:
        """Return the partition without a record for which records of others wait, if any."""
        if self._rounds is None or self._pending or not self._waiting:
            return None
        return self._rounds.turn

    def _listen(self, client: Client, seconds: float) -> None:
        """Note who was silent. Only the time of polls counts: between them nothing is fetched."""
        for number, at in client.get_answer_times().items():
            if at is not None and at != self._answered.get(number):
                self._answered[number] = at
                self._silent[number] = 0
            elif number not in self._waiting:
                self._silent[number] += seconds

    def silent(self) -> float | None:
        """Return seconds of polling without an answer, or of the group; None before the first."""
        away = [self._silent[number] for number in self._away()]
        if self.member is not None and (of_group := self.member.silent()):
            away.append(of_group)
        known = set(self._next) <= set(self._answered)
        return max(away) if away else 0.0 if known else None

    def _away(self) -> set[int]:
        """Return the partitions whose broker does not answer."""
        # A fetch that finds nothing is answered within half a second, one that finds much in the
        # time that any request has.
        longest = self.settings.request_timeout_seconds
        return {number for number in self._next if self._silent[number] > longest}

    def reason(self) -> str:
        """Return why brokers that are `silent` do not answer: ``cause:errno`` or a class."""
        if self.member is not None and self.member.silent() and not self._away():
            return self.member.reason()
        return NO_ANSWER if self._client is None else self._client.reason()

    def last_answer(self) -> float | None:
        """Return when a broker answered last, by ``time.monotonic``; None before it."""
        return max(self._answered.values(), default=None)

    # Positions.

    def position(self) -> Position:
        """Return which log it is, the partitions as chosen, and offset and gaps of each."""
        return self._position(self._name, sorted(self._next))

    def get_position(self, partition: int) -> Position:
        """Return where one partition continues: the `position` of a source of it alone."""
        return self._position([partition], [partition])

    def _position(self, name: str | list[int], of: Sequence[int]) -> Position:
        stands = zip(Offsets._fields, self._at, strict=True)
        return {
            **self._identity._asdict(),
            "partitions": name,
            **{key: {str(each): has[each] for each in of if each in has} for key, has in stands},
            **({} if self._rounds is None else {"rounds": self._rounds.to_json()}),
        }

    def passed(self) -> dict[str, int]:
        """Return the next offset of each partition, by location, without what gaps have skipped."""
        topic, gaps = self.settings.topic, self._at.gaps
        return {f"{topic}/{number}": at - gaps.get(number, 0) for number, at in self._next.items()}

    def progress(self) -> Progress:
        """Return the sum of all next offsets; a topic has no end."""
        return Progress(sum(self._next.values()), None, "documents")

    def seek(self, position: Position) -> None:
        """Continue from a position that `position` returned; an error changes nothing."""
        check_open(self._closed)
        client = self._client or self._rebuild()
        to, rounds = read_position(position, self._identity, self._name), None
        ours = self._ours(client.partitions()) | self._next.keys()
        if not to.offsets.keys() <= ours or ("rounds" in position) != (self._rounds is not None):
            raise not_a_position("offsets")
        if self._rounds is not None:
            begins, block = read_numbers(position["rounds"], "begins"), position["rounds"]["block"]
            rounds = Rounds(begins, block, to.offsets)
        else:
            to = to._replace(offsets=dict.fromkeys(ours, 0) | to.offsets)
        self._go_to(client, to)
        self._rounds = rounds
        self._drop_fetched()
        self._rebuilds = 0
        self._truncated = False

    # Partitions of a group.

    def get_partitions(self) -> set[int]:
        """Return the partitions that are known; none while a client is replaced."""
        return set() if self._client is None else self._client.partitions()

    def take(self, begins: Mapping[int, Position | int | None], start: str = "earliest") -> None:
        """Read more partitions: from a `get_position`, an offset, or their `start`."""
        check_open(self._closed)
        client = self._client or self._rebuild()
        fresh = {number for number, at in begins.items() if at is None}
        offsets = self._next | self._begin(client, fresh, start)
        to = Offsets(offsets, dict(self._at.lost), dict(self._at.gaps))
        for number, at in begins.items():
            if isinstance(at, int):
                to.offsets[number] = at
            elif at is not None:
                own = read_position(at, self._identity, [number])
                for known, more in zip(to, own, strict=True):
                    known.update(more)
        self._go_to(client, to)

    def give_up(self, partitions: set[int]) -> None:
        """Read partitions no longer."""
        for known in (*self._at, self._answered, self._silent):
            for number in partitions & known.keys():
                del known[number]
        self._pending.clear()
        if self._client is not None:
            self._client.assign(self._next)

    # What is shown.

    def lag(self) -> dict[int, int | None]:
        """Return offsets that each partition is behind its last known end; None if unknown."""
        unknown: dict[int, int | None] = dict.fromkeys(self._next)
        if self._client is None:
            return unknown
        try:
            at, ends = self.offsets(), self._client.ends()
        except Broken:
            return unknown
        there = (at.keys() & ends) - self._away()
        return unknown | {n: max(0, ends[n] - at[n]) for n in there}

    def at_end(self) -> bool:
        """Ask the brokers whether all that can be read now was returned, in the fixed order too."""
        if self._client is None:
            return False
        try:
            # The last known end of a partition, as of `lag`, lies behind open transactions.
            at, logs = self.offsets(), self._client.bounds(set(self._next))
        except (Broken, SourceError):
            return False  # The next poll meets the fault again, and says it.
        last = logs if self._rounds is None else [self._rounds.turn]
        # Before an offset behind its end, a log was cut, which the next poll says.
        return all(at[number] == logs[number].stop for number in last)

    def offsets(self) -> dict[int, int]:
        """Return the next offsets, behind marks that no record waits before; or `Broken`."""
        if self._client is None:
            return dict(self._next)
        waiting = self._waiting | {run.partition for run in self._pending}
        read = self._client.positions()
        return {n: at if n in waiting else read[n] for n, at in self._next.items()}

    def lost(self) -> dict[str, int]:
        """Return how many records are known to be lost, for display."""
        return {"records": sum(self._at.lost.values())}

    def logs(self, ahead: int = 0) -> dict[str, Log]:
        """Return the partitions by location, as logs of unique names, after records `ahead`."""
        cluster, topic, topic_id = self._identity
        next_ = {number: at + ahead for number, at in self._next.items()}
        if self._rounds is not None:
            next_ = self._rounds.ahead(self._next, ahead)
        return {
            f"{topic}/{number}": Log(f"kafka:{cluster}/{topic_id}/{number}", at)
            for number, at in next_.items()
        }

    def notes(self) -> list[str]:
        """Return the notes that `commit` last left under `group`, one a partition."""
        if self._client_settings.group is None:
            return []
        client = self._client or self._rebuild()
        return [str(entry.metadata) for entry in client.find_entries(set(self._next)).values()]

    def commit(self, position: Position, note: str = "", wait_seconds: float = 0.0) -> None:
        """Show the offsets of a durable `position` under `group`, and a note; none is read back.

        With `wait_seconds` wait for the answer of the brokers.
        """
        # The package logs what is refused; nothing is lost by it.
        shown = self.member or self._client
        if shown is not None and self.settings.group:
            offsets = {int(number): at for number, at in position["offsets"].items()}
            entries = shown.entries(offsets, note)
            if wait_seconds:
                with shown.name_errors("do not take the offsets of the group"):
                    shown.consumer.commit(entries, milliseconds(wait_seconds))
            else:
                shown.consumer.commit_async(entries)

    def close(self) -> None:
        """Close the connections, and leave the group. Closing twice is allowed."""
        self._closed = True
        if self.member is not None:
            self.member.close()
        if self._client is not None:
            self._client.close()
            self._client = None
