"""The folder of published models, and the identities of topics over them: topic 3 stays topic 3.

::

    snapshot-000001               a model file, never changed once it is there
    snapshot-000001.topics.json   ids, prevalence and movement of its topics
    topic-names.json              names of topics by these ids, if any were given

The second file is made from the models and may be deleted. For the last `FOLLOWED` snapshots it is
made again when it is missing or belongs to another model; ids then start again at the oldest of
these without it. Topics of an older snapshot without it have the id None.
"""

import hashlib
import json
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from streamlda.container import MAX_HEADER_BYTES, whole_file
from streamlda.errors import InvalidSettingError, ModelFileError, between
from streamlda.model.diagnostics import DOUBTS, exclusivity, junk_topics, nearest_topics
from streamlda.model.matching import match_topics
from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel, load
from streamlda.model.topics import check_name
from streamlda.privacy.statement import PRIVATE, check_statement, statement_lines
from streamlda.storage.faults import FAULTS
from streamlda.text.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

#: Topics are followed over, and lists go back to, this many snapshots.
FOLLOWED = 200

#: Models held in memory: those that two requests in a row want, and the one before the latest.
CACHED_MODELS = 2

#: Most ids of topics that an error names.
MOST_SHOWN = 20

_NAME = re.compile(r"snapshot-([0-9]{6,9})")
_VERSION = 2
_NAMES = "topic-names.json"

#: Members of a `Summary` that viewers do not see.
_HIDDEN = ("next_id", "fingerprint")

#: Beyond this a topic of a stream is a new one: less than half (0.51) of the probability is shared,
#: as ``sum_w sqrt(p_w q_w)`` measures it. Here documents are largely the same.
NEW_TOPIC_DISTANCE = 0.7

_Value = TypeVar("_Value")


class Topic(NamedTuple):
    """A topic as a viewer follows it."""

    #: From 1, the same over snapshots, never used again; None where it is not known.
    id: int | None
    #: Share of all tokens; None where it was not measured.
    prevalence: float | None
    #: Distance to the same topic one snapshot before; None for a new one.
    moved: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Entry of a snapshot in a list, without its words."""

    number: int
    #: Time of its file, ISO 8601 in UTC.
    created: str
    #: Documents used; of a private one the record slots, which are fixed in advance.
    documents: int
    #: True if its privacy statement claims privacy, and bears that out.
    private: bool
    topics: list[Topic]
    #: Documents since the snapshot before, as `Interval.to_json`; None where it is not known.
    interval: dict[str, Any] | None = None
    #: First and last record slot of the window of a private one.
    slots: list[int] | None = None
    #: The first unused id after it, and the fingerprint of its model.
    next_id: int = 1
    fingerprint: str = ""

    def json(self) -> dict[str, Any]:
        """Return what viewers see as plain JSON values."""
        found = {name: value for name, value in asdict(self).items() if name not in _HIDDEN}
        return {**found, "topics": [topic._asdict() for topic in self.topics]}


class Snapshots:
    """The published models of one daemon; safe between threads, one process writes."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._lock = threading.RLock()
        self._load = lru_cache(CACHED_MODELS)(lambda path, written: load(path))
        self._load_index = lru_cache(FOLLOWED)(self._read_index)

    def path(self, number: int) -> Path:
        """Return where the model of a snapshot is, or would be."""
        between(1, 999_999_999, number=number, remedy="count snapshots from 1")
        return self.folder / f"snapshot-{number:06d}"

    def publish(self, number: int, model: TopicModel) -> Path:
        """Write a snapshot under a new number, whole or not at all, and identify its topics."""
        path = self.path(number)
        with self._lock:
            FAULTS.check(not path.exists(), "published", number=number, path=str(path))
            self.folder.mkdir(parents=True, exist_ok=True)
            model.save(path)
            self.summary(number)
        return path

    def numbers(self) -> list[int]:
        """Return the numbers of the snapshots that are there, ascending. Time O(files)."""
        try:
            with os.scandir(self.folder) as entries:
                names = [_NAME.fullmatch(entry.name) for entry in entries if entry.is_file()]
        except FileNotFoundError:
            return []
        found = [(int(name[1]), name[0]) for name in names if name]
        return sorted(n for n, name in found if n >= 1 and name == f"snapshot-{n:06d}")

    def remove_old(self, keep: float) -> None:
        """Keep the last snapshot, and the newest `keep` (int), or those of `keep` seconds."""
        with self._lock:
            *earlier, _ = self.numbers() or [0]
            if isinstance(keep, int):
                old = earlier[: len(earlier) + 1 - keep]
            else:
                border = time.time() - keep
                old = [n for n in earlier if self.path(n).stat().st_mtime < border]
            for number in old:
                try:
                    self.path(number).unlink()
                    self._index(number).unlink(missing_ok=True)
                except OSError as error:
                    message = "an old snapshot cannot be removed: number=%d error=%s"
                    logger.warning(message, number, type(error).__name__)

    def latest(self) -> int | None:
        """Return the number of the newest snapshot, or None before the first."""
        return max(self.numbers(), default=None)

    def model(self, number: int) -> TopicModel:
        """Return the model of a snapshot; the last `CACHED_MODELS` are held."""
        path = self.path(number)
        with self._lock:
            return self._load(path, path.stat().st_mtime_ns)

    def summary(self, number: int) -> Summary:
        """Return the summary of a snapshot; time O(K K V) for each earlier one that is unknown."""
        with self._lock:
            if (known := self._read(number)) is not None:
                return known
            recent = self.numbers()[-FOLLOWED:]
            if number not in recent:
                shares = self.model(number).shares
                return self._summarize(number, [Topic(None, share, None) for share in shares], 1)
            before = None
            for each in recent[: recent.index(number)]:
                before = unless_damaged(self._read_or_follow, each, before) or before
            return self._follow(number, before)

    def _read_or_follow(self, number: int, before: Summary | None) -> Summary:
        return self._read(number) or self._follow(number, before)

    def summaries(self) -> list[Summary]:
        """Return the summaries of the last `FOLLOWED` snapshots that are whole, ascending."""
        recent = self.numbers()[-FOLLOWED:]
        found = [unless_damaged(self.summary, number) for number in recent]
        return [summary for summary in found if summary is not None]

    def topics(self, number: int, n_words: int = 10) -> dict[str, Any]:
        """Return a snapshot with words, quality and documents of topics, as plain JSON values."""
        with self._lock:
            found = self.summary(number).json()
            model = self.name_topics(number, self.model(number))
        ids = [topic["id"] for topic in found["topics"]]
        # A document that is shown is not private.
        held = None if claims_privacy(model.privacy) else model.representative_documents
        documents: list[Any] = [*held] if held else [None] * len(ids)
        about = zip(model.top_words(n_words), documents, _quality(model, ids), strict=True)
        for topic, (words, shown, quality) in zip(found["topics"], about, strict=True):
            topic |= {"words": [list(pair) for pair in words], "documents": shown, **quality}
        statement = dict(model.privacy)
        return {
            **found,
            "timeline": model.timeline and _show_timeline(model.timeline),
            "privacy": statement,
            "privacy_lines": statement_lines(statement),
        }

    def rename(self, names: Mapping[int, str | None]) -> None:
        """Name topics by their ids, in all snapshots; None takes a name away."""
        topics = (topic for summary in self.summaries() for topic in summary.topics)
        known = {topic.id for topic in topics if topic.id is not None}
        found = self.names()
        for id_, name in names.items():
            FAULTS.check(id_ in known, "no topic", topic=id_, there=sorted(known)[:MOST_SHOWN])
            if name is not None:
                check_name(name)
                found[str(id_)] = name
            else:
                found.pop(str(id_), None)
        with whole_file(self.folder / _NAMES) as file:
            file.write(json.dumps(found, ensure_ascii=False).encode())

    def names(self) -> dict[str, str]:
        """Return the names of topics that `rename` was given, by id."""
        try:
            found: dict[str, str] = json.loads((self.folder / _NAMES).read_bytes())
            for name in found.values():
                check_name(name)
        except FileNotFoundError:
            return {}
        except (ValueError, AttributeError) as error:
            logger.warning("names of topics cannot be read: error=%s", type(error).__name__)
            return {}
        return found

    def name_topics(self, number: int, model: TopicModel) -> TopicModel:
        """Return the model of a snapshot with the names of its topics, where ids are known."""
        given, known = self.names(), self._read(number)
        if not given or known is None:
            return model
        ids = [str(topic.id) for topic in known.topics]
        return model.rename({k: given[id_] for k, id_ in enumerate(ids) if id_ in given})

    def _read(self, number: int) -> Summary | None:
        """Return the stored summary of a snapshot, if it is of the model that is there."""
        written = self.path(number).stat().st_mtime_ns
        try:
            return self._load_index(number, written)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            message = "the index of a snapshot is made again: number=%d error=%s"
            logger.warning(message, number, type(error).__name__)
            return None

    def _read_index(self, number: int, version: int) -> Summary:
        path, stored = self.path(number), json.loads(self._index(number).read_bytes())
        if stored.pop("version") != _VERSION or stored["fingerprint"] != fingerprint(path):
            raise ValueError("it is that of another model")
        topics = [Topic(**topic) for topic in stored.pop("topics")]
        return Summary(number, _get_time(path), topics=topics, **stored)

    def _follow(self, number: int, before: Summary | None) -> Summary:
        earlier = unless_damaged(self.model, before.number) if before else None
        ids = [topic.id for topic in before.topics] if before else []
        next_id = before.next_id if before else 1
        topics, next_id = follow_topics(earlier, ids, self.model(number), next_id)
        found = self._summarize(number, topics, next_id)
        stored = asdict(found) | {"topics": found.json()["topics"], "version": _VERSION}
        del stored["number"], stored["created"]
        with whole_file(self._index(number)) as file:
            file.write(json.dumps(stored, separators=(",", ":")).encode())
        return found

    def _summarize(self, number: int, topics: list[Topic], next_id: int) -> Summary:
        model, path = self.model(number), self.path(number)
        private, interval = is_private(model), model.interval
        cohort = model.privacy["cohort"] if private else {}
        return Summary(
            number,
            _get_time(path),
            model.documents_seen,
            private,
            topics,
            interval=None if interval is None else interval.to_json(),
            slots=[cohort["first"], cohort["last"]] if private else None,
            next_id=next_id,
            fingerprint=fingerprint(path),
        )

    def _index(self, number: int) -> Path:
        return self.path(number).with_suffix(".topics.json")


def follow_topics(
    before: TopicModel | None, ids: Sequence[int | None], after: TopicModel, next_id: int
) -> tuple[list[Topic], int]:
    """Return the topics of `after`, with ids of those they continue, and the next unused id."""
    pairs = match_topics(before, after, max_distance=NEW_TOPIC_DISTANCE) if before else []
    origin = {pair.second: pair for pair in pairs}
    topics = []
    for k, share in enumerate(after.shares):
        pair = origin.get(k)
        if pair is None:
            topics.append(Topic(next_id, share, None))
            next_id += 1
        else:
            topics.append(Topic(ids[pair.first], share, pair.distance))
    return topics, next_id


def is_private(model: TopicModel) -> bool:
    """Return whether a model claims to be private and bears it out."""
    if not claims_privacy(model.privacy):
        return False
    try:
        check_statement(model.privacy)
    except InvalidSettingError as error:
        logger.warning("a model claims privacy and does not bear it out: %s", error)
        return False
    return True


def _quality(model: TopicModel, ids: list[int | None]) -> list[dict[str, Any]]:
    """Return the quality of each topic, reasons not to rely on it, and the topic nearest to it."""
    own, near = exclusivity(model.components).tolist(), nearest_topics(model.components)
    return [
        {
            "name": model.names[k],
            "npmi": model.npmi[k],
            "exclusivity": own[k],
            "marks": {mark: DOUBTS[mark] for mark in marks},
            "nearest": other and {"id": ids[other[0]], "distance": other[1]},
        }
        for k, (marks, other) in enumerate(zip(junk_topics(model), near, strict=True))
    ]


def _show_timeline(timeline: Timeline) -> dict[str, Any]:
    rows = timeline.shares.round(6).tolist()
    shares = [[None if math.isnan(share) else share for share in row] for row in rows]
    return {**timeline.to_json(), "ahead": timeline.ahead, "shares": shares}


def fingerprint(path: Path) -> str:
    """Return a digest of the header of a model file, which holds the checksum of all of it."""
    with path.open("rb") as file:
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), MAX_HEADER_BYTES))
    return hashlib.blake2b(header, digest_size=16).hexdigest()


def _get_time(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def unless_damaged(read: Callable[..., _Value | None], which: Any, *more: object) -> _Value | None:
    """Call `read` on a model; return None if it is missing or, with a warning, damaged."""
    try:
        return read(which, *more)
    except FileNotFoundError:
        return None
    except (ModelFileError, OSError) as error:
        message = "a snapshot is skipped, since it cannot be read: number=%s error=%s"
        logger.warning(message, which, type(error).__name__)
        return None


def claims_privacy(privacy: Mapping[str, Any]) -> bool:
    """Return whether a privacy statement says that its model is private."""
    return privacy.get("statement") == PRIVATE


class NamedModel(NamedTuple):
    """A model that reads text, with the digest of its file."""

    model: TopicModel
    words: Vocabulary
    #: Number of the snapshot; None for a file.
    number: int | None
    digest: str


class NewestModel:
    """Reader of a model that may be replaced, or followed by a newer snapshot.

    A damaged model is skipped, with a warning, while there is another.
    """

    def __init__(self, path: str | os.PathLike[str], snapshots: Snapshots | None = None) -> None:
        self._path = Path(path)
        if snapshots is None and self._path.is_dir():
            snapshots = Snapshots(self._path)
        self._snapshots = snapshots
        self._seen: object = None
        self._newest: NamedModel | None = None

    def find(self) -> NamedModel | None:
        """Return the newest model; None if a folder has none yet."""
        path, number, before = self._path, None, self._newest
        if self._snapshots is not None:
            if (number := self._snapshots.latest()) is None:
                return before
            path = self._snapshots.path(number)
        seen: object = None
        try:
            status = path.stat()
            seen = number, status.st_ino, status.st_mtime_ns, status.st_size
            if seen == self._seen:
                return before
            found = _read(path, number)
            if self._snapshots is not None and number is not None:
                found = found._replace(model=self._snapshots.name_topics(number, found.model))
        except (OSError, ModelFileError) as error:
            if before is None:
                raise
            if seen is not None:
                logger.warning("a newer model cannot be read: error=%s", type(error).__name__)
                self._seen = seen
            return before
        grown = "vocabulary_changes" in found.model.settings
        same = before is None or before.words.fingerprint == found.words.fingerprint
        FAULTS.check(same or grown, "newer words", path=str(self._path), number=found.number)
        self._seen, self._newest = seen, found
        return found


def _read(path: Path, number: int | None) -> NamedModel:
    model, digest = load(path), ""
    # A file may be replaced while it is read.
    while (found := fingerprint(path)) != digest:
        model, digest = load(path), found
    return NamedModel(model, get_words(model), number, digest)


def get_words(model: TopicModel) -> Vocabulary:
    """Return the vocabulary of a model that reads text."""
    if model.vocabulary is None:
        raise FAULTS.make("no words")
    return model.vocabulary
