"""Client that is kept at offsets of our own, whatever happens to it, the brokers or the log."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from time import monotonic

from streamlda.checks import failure
from streamlda.errors import SourceError, SourceRefusedError, StreamLDAError
from streamlda.stream.source import Log, Position
from streamlda_connectors.checks import check, check_open, fault
from streamlda_connectors.kafka.client import (
    Bounds,
    Broken,
    ClientSettings,
    OutOfRange,
    Run,
    Truncated,
)
from streamlda_connectors.kafka.connection import NO_ANSWER
from streamlda_connectors.kafka.consumer import Client
from streamlda_connectors.kafka.partitions import Rounds, Share, Standing, after_gap, read_position

logger = logging.getLogger(__name__)

#: How often a client is replaced at the same offsets before they count as damaged.
MAX_REBUILDS = 3

#: How often it is looked whether fetches were answered, in seconds of listening.
LISTEN_SECONDS = 0.5


class TopicReader:
    """Records of our share of a topic; who takes those that are pending moves the offsets."""

    def __init__(
        self,
        settings: ClientSettings,
        share: Share,
        *,
        start: str,
        allow_gaps: bool,
        fixed_order: bool = False,
        taken: bool = False,
    ) -> None:
        self._settings = settings
        self._share = share
        self._allow_gaps = allow_gaps
        #: Partitions are read once they are taken, and not by themselves.
        self._taken = taken
        #: Fetched and not taken; dropped, to be fetched again, when the client is replaced.
        self._pending: deque[Run] = deque()
        #: Records known to be lost, by partition, and how far its offset moved without records.
        self._lost: Counter[int] = Counter()
        self._gaps: Counter[int] = Counter()
        self._rebuilds = 0
        self._truncated = False
        self._look_at = 0.0
        self._paused = self._closed = False
        #: Of each partition, when a fetch was answered last, and for how long none was since.
        self._answered: dict[int, float] = {}
        self._silent: defaultdict[int, float] = defaultdict(float)
        self._listened = 0.0
        self._client: Client | None = Client(settings)
        try:
            self._identity = self._client.identity()
            ours = share.first(self._client.partitions(), settings.topic)
            if taken:
                ours = set()
            bounds = self._client.bounds(ours)
            #: The next offset of each partition; moved by the taker of `_pending`.
            self._next = {
                number: bounds[number].first if start == "earliest" else bounds[number].end
                for number in sorted(ours)
            }
            self._client.assign(self._next)
        except BaseException:
            self._client.close()
            raise
        #: What puts records in order before they are `_pending`, if that is fixed.
        self._rounds = Rounds(self._next) if fixed_order else None
        self._left_out: set[int] = set()

    def _fetch(self, wait: float, room: int, *, recover: bool) -> bool:
        """Add up to `room` records to `_pending` within `wait` seconds; return if any came.

        On a fault, put the client right, or raise if that fails; without `recover`, only return.
        """
        try:
            if self._truncated:
                self._note_truncation()
            client = self._client or self._rebuild()
            self._pick_up_partitions(client)
            begun = monotonic()
            if room < 1:
                client.pause(True)
            elif self._rounds is not None:
                client.pause(self._paused, self._held)
            fetched = client.poll(wait, max(room, 1))
            if room < 1:
                client.pause(self._paused)
            elif not self._paused:
                self._listen(client, monotonic() - begun)
            self._take(client, fetched)
        except (OutOfRange, Broken) as error:
            self._drop_client()
            if recover:
                self._recover(error)
            return False
        except StreamLDAError:
            # Of any kind: a password file may be gone while records wait to be handed out.
            self._drop_client()
            if recover:
                raise
            return False
        if fetched:
            self._rebuilds = 0
        return bool(fetched)

    def _take(self, client: Client, fetched: Sequence[Run]) -> None:
        """Put fetched records where they are taken from, in order if that is fixed."""
        if self._rounds is None:
            self._pending.extend(fetched)
            return
        for run in fetched:
            self._rounds.add(run)
        self._pending.extend(self._rounds.in_order())
        if not fetched and not self._pending:
            # The next offsets may hold no record: those of transactions that end there.
            self._rounds.passed(client.positions()[self._rounds.turn])
            self._pending.extend(self._rounds.in_order())

    @property
    def _held(self) -> set[int]:
        """Partitions of which records wait for the turn of others; these are not fetched."""
        return set() if self._rounds is None else self._rounds.held

    def waits_for(self) -> int | None:
        """Return the partition without a record for which records of others wait, if any."""
        if self._rounds is None or self._pending or not self._held:
            return None
        return self._rounds.turn

    def _listen(self, client: Client, seconds: float) -> None:
        """Note who was silent. Only the time of polls counts: between them nothing is fetched."""
        self._listened += seconds
        if self._listened < LISTEN_SECONDS:
            return
        for number, at in client.answered().items():
            if at is not None and at != self._answered.get(number):
                self._answered[number] = at
                self._silent[number] = 0
            elif number not in self._held:
                self._silent[number] += self._listened
        self._listened = 0.0

    def silent(self) -> float | None:
        """Return seconds of polling without an answer of a partition; None before the first."""
        longest = max(map(self._silent.__getitem__, self._next), default=0.0)
        if self._is_away(longest):
            return longest
        return 0.0 if set(self._next) <= set(self._answered) else None

    def _is_away(self, silent: float) -> bool:
        # A fetch that finds nothing is answered within half a second, one that finds much in the
        # time that any request has.
        return silent > self._settings.request_timeout_seconds

    def reason(self) -> str:
        """Return why brokers that are `silent` do not answer: ``cause:errno`` or a class."""
        return NO_ANSWER if self._client is None else self._client.reason()

    def last_answer(self) -> float | None:
        """Return when a fetch was answered last, with records or not, by ``time.monotonic``."""
        return max(self._answered.values(), default=None)

    def _recover(self, error: OutOfRange | Broken) -> None:
        self._rebuilds += 1
        if isinstance(error, Truncated):
            self._note_truncation()
        if isinstance(error, OutOfRange) or self._rebuilds <= MAX_REBUILDS:
            logger.warning(
                "the client of topic %s is replaced (%s %s)",
                *(self._settings.topic, type(error).__name__, error),
            )
            self._rebuild()
            if self._rebuilds <= MAX_REBUILDS:
                return
        raise fault(
            "records",
            topic=self._settings.topic,
            offsets=self._next,
            rebuilds=MAX_REBUILDS,
            problem=f"{type(error).__name__} {error}",
        ) from error

    def _note_truncation(self) -> None:
        # The log may have grown beyond our offset again: its bounds would not tell.
        if not self._allow_gaps:
            self._truncated = True
            raise fault("cut log", topic=self._settings.topic, offsets=self._next)
        logger.warning(
            "topic %s was cut; reading continues at the same offsets or the end",
            self._settings.topic,
        )

    def _rebuild(self) -> Client:
        """Make a client at our own offsets, if it still is the same topic and the log has them."""
        self._drop_client()
        client = Client(self._settings)
        try:
            found, before = client.identity(), self._identity
            ids = {"topic_id": found.topic_id, "topic_id_before": before.topic_id}
            check(found == before, "another topic", topic=self._settings.topic, **ids)
            self._go_to(client, self._next)
            client.pause(self._paused)
        except BaseException:
            client.close()
            raise
        self._client = client
        return client

    def _go_to(self, client: Client, offsets: Mapping[int, int]) -> None:
        bounds = client.bounds(set(offsets))
        moved = self._check_gaps(offsets, bounds)
        client.assign(moved)
        for number, at in moved.items():
            self._next[number] = at

    def _check_gaps(
        self, offsets: Mapping[int, int], bounds: Mapping[int, Bounds]
    ) -> dict[int, int]:
        """Return where to continue, or raise if the log does not hold `offsets`."""
        gaps = {
            number: at
            for number, at in offsets.items()
            if not bounds[number].first <= at <= bounds[number].end
        }
        if gaps and not self._allow_gaps:
            number, at = next(iter(gaps.items()))
            raise failure(
                "the log must hold the next record of each partition",
                topic=self._settings.topic,
                partition=number,
                offset=at,
                log=f"{bounds[number].first}..{bounds[number].end}",
                remedy="records were removed before they were read: start with allow_gaps to "
                "continue "
                "without them",
                # The end may move on, as after an election of a leader; the first record does not.
                error=SourceError if at > bounds[number].end else SourceRefusedError,
            )
        moved = dict(offsets)
        for number, at in gaps.items():
            moved[number], lost = after_gap(at, bounds[number])
            self._note_gap(number, at, moved[number], lost)
        return moved

    def _note_gap(self, number: int, before: int, at: int, lost: int) -> None:
        if before == at:
            return
        logger.warning(
            "gap: topic %s partition %d continues at offset %d, %d records lost",
            *(self._settings.topic, number, at, lost),
        )
        self._next[number] = at
        self._gaps[number] += at - before
        if lost:
            self._lost[number] += lost

    def _pick_up_partitions(self, client: Client) -> None:
        if self._taken or monotonic() < self._look_at:
            return
        self._look_at = monotonic() + min(1.0, self._settings.refresh_seconds)
        new = self._share.of(client.partitions()) - set(self._next) - self._left_out
        if new and self._rounds is not None:
            self._left_out |= new
            logger.warning(
                "topic %s has new partitions %s, which a fixed order leaves out",
                *(self._settings.topic, sorted(new)),
            )
        elif new:
            # assign() may drop what the client fetched ahead; it is not handed out yet.
            self._pending.clear()
            self._go_to(client, self._next | dict.fromkeys(sorted(new), 0))
            logger.info("topic %s has new partitions %s", self._settings.topic, sorted(new))

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        self._drop_fetched()
        if client is not None:
            client.close()

    def _drop_fetched(self) -> None:
        self._pending.clear()
        if self._rounds is not None:
            self._rounds.go_on(self._next)

    def pause(self) -> None:
        """Take no records until `resume`. Polls bring nothing, and keep the connection."""
        self._pause(True)

    def resume(self) -> None:
        """Take records again after `pause`."""
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        self._paused = paused
        if self._client is not None:
            self._client.pause(paused)

    def position(self) -> Position:
        """Return which log it is, the partitions as chosen, and offset and gaps of each."""
        return self._position(self._share.name, sorted(self._next))

    def position_of(self, partition: int) -> Position:
        """Return where one partition continues: the `position` of a source of it alone."""
        return self._position([partition], [partition])

    def _position(self, name: str | list[int], of: Sequence[int]) -> Position:
        return {
            **self._identity._asdict(),
            "partitions": name,
            "offsets": {str(each): self._next[each] for each in of},
            "lost": {str(each): self._lost[each] for each in of if each in self._lost},
            "gaps": {str(each): self._gaps[each] for each in of if each in self._gaps},
            **({} if self._rounds is None else {"rounds": self._rounds.to_json()}),
        }

    def passed(self) -> dict[str, int]:
        """Return the next offset of each partition, by location, without what gaps have skipped."""
        topic = self._settings.topic
        return {f"{topic}/{number}": at - self._gaps[number] for number, at in self._next.items()}

    def seek(self, position: Position) -> None:
        """Continue from a position that `position` returned; an error changes nothing."""
        check_open(self._closed)
        client = self._client or self._rebuild()
        ours = self._share.of(client.partitions()) | set(self._next)
        fixed = self._rounds is not None
        found = read_position(position, self._identity, self._share, ours, fixed=fixed)
        rounds = self._rounds and Rounds.of(position["rounds"], found.offsets)
        self._move(client, found)
        self._rounds = rounds
        self._drop_fetched()
        self._rebuilds = 0
        self._truncated = False

    def _move(self, client: Client, to: Standing) -> None:
        before = self._next, self._lost, self._gaps
        self._next, self._lost, self._gaps = dict(to.offsets), Counter(to.lost), Counter(to.gaps)
        try:
            self._go_to(client, to.offsets)
        except BaseException:
            self._next, self._lost, self._gaps = before
            raise
        self._pending.clear()

    def known_partitions(self) -> set[int]:
        """Return the partitions that are known, of our share; none while a client is replaced."""
        return set() if self._client is None else self._share.of(self._client.partitions())

    def take(self, positions: Mapping[int, Position | None]) -> None:
        """Read more partitions: each from what `position_of` returned, or its first record on."""
        check_open(self._closed)
        client = self._client or self._rebuild()
        fresh = {number for number, position in positions.items() if position is None}
        first = {number: bound.first for number, bound in client.bounds(fresh).items()}
        to = Standing(self._next | first, dict(self._lost), dict(self._gaps))
        for number, position in positions.items():
            if position is not None:
                own = read_position(position, self._identity, Share([number]), {number})
                for known, more in zip(to, own, strict=True):
                    known.update(more)
        self._move(client, to)

    def give_up(self, partitions: set[int]) -> None:
        """Read partitions no longer."""
        for known in (self._next, self._lost, self._gaps, self._answered, self._silent):
            for number in partitions & known.keys():
                del known[number]
        self._pending.clear()
        if self._client is not None:
            self._client.assign(self._next)

    def lag(self) -> dict[int, int | None]:
        """Return offsets that each partition is behind its last known end; None if unknown."""
        unknown: dict[int, int | None] = dict.fromkeys(self._next)
        if self._client is None:
            return unknown
        try:
            at, ends = self._read(self._client), self._client.ends()
        except Broken:
            return unknown
        there = {n for n in at.keys() & ends if not self._is_away(self._silent[n])}
        return unknown | {n: max(0, ends[n] - at[n]) for n in there}

    def at_end(self) -> bool:
        """Ask the brokers whether all was returned that can be read now, in the fixed order too."""
        if self._client is None:
            return False
        try:
            at, bounds = self._read(self._client), self._client.bounds(set(self._next))
        except (Broken, SourceError):
            return False  # The next poll meets the fault again, and says it.
        last = bounds if self._rounds is None else {self._rounds.turn}
        # Before an offset behind its end, a log was cut, which the next poll says.
        return all(at[number] == bounds[number].end for number in last)

    def offsets(self) -> dict[int, int]:
        """Return the next offset of each partition, as of `lag`; may raise `Broken`."""
        return dict(self._next) if self._client is None else self._read(self._client)

    def _read(self, client: Client) -> dict[int, int]:
        """Return the next offset of each partition, behind marks that no record waits before."""
        waiting = self._held | {run.partition for run in self._pending}
        read = client.positions()
        return {
            number: n if number in waiting else read[number] for number, n in self._next.items()
        }

    def lost(self) -> dict[str, int]:
        """Return how many records are known to be lost, for display."""
        return {"records": self._lost.total()}

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
        if self._settings.group is None:
            return []
        client = self._client or self._rebuild()
        return client.notes(set(self._next))

    def close(self) -> None:
        """Close the connections. Closing twice is allowed."""
        self._closed = True
        self._drop_client()
