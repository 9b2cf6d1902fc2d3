"""Inference as a stream: proportions of each document of a topic, written to another.

The newest model at the time of reading infers a document; before the first model nothing is read.
The position stands in the consumer group alone, and moves in the transaction that writes the
results.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import orjson

from streamlda import errors
from streamlda.model.document_table import UNREADABLE
from streamlda.run.parts import open_exchange, open_letters
from streamlda.run.proportions import infer
from streamlda.service.logs import log, log_failure, name_reason
from streamlda.service.rules import Retry
from streamlda.service.signals import leave, watch_signals
from streamlda.service.status import Status
from streamlda.settings.table import RunSettings
from streamlda.storage.snapshots import NamedModel, NewestModel, is_private
from streamlda.stream.source import Answer, KeyedBatch
from streamlda.utils import exit_codes

#: Most records of a transaction, and the longest wait for them, or for a model, in seconds.
POLL_RECORDS, WAIT_SECONDS = 1000, 0.5

#: How long dead letters may take to become durable.
FLUSH_SECONDS = 5.0

#: How often it is logged how far it is, in seconds.
LOG_SECONDS = 60.0

#: What only a person can mend; rights that were there once may come back.
FATAL = (errors.SourceRefusedError, errors.InvalidSettingError, errors.VocabularyError)


class Inference:
    """Infers the documents of a topic, a poll at a time, until it is ended.

    It raises what only a person can mend, and all but brokers that are away where nothing was read
    yet. Other failures are logged, and tried again.
    """

    def __init__(self, settings: RunSettings, newest: NewestModel) -> None:
        self._settings, self._newest = settings, newest
        #: Records by outcome, those that were gone before they were read, and the last snapshot.
        self.records, self.lost = {"inferred": 0, "rejected": 0}, 0
        self._snapshot: int | None = None
        self._status = Status(private=False, stream=f"kafka:{settings.kafka.topic}")
        self._retry = Retry("infer")
        self._exchange: Any = None
        self._letters: Any = None
        self._opened = False
        self._ended = Event()
        self._logged_at = time.monotonic()

    def end(self) -> None:
        """End after the open transaction."""
        self._ended.set()

    def run(self) -> None:
        """Infer until `end`."""
        try:
            while not self._ended.is_set():
                if self._retry.waits(time.monotonic()):
                    self._ended.wait(WAIT_SECONDS)
                    continue
                try:
                    self._step()
                except Exception as error:
                    self._report_failure(error)
        finally:
            self._close()

    def _report_failure(self, error: Exception) -> None:
        away = isinstance(error, errors.SourceAwayError)
        fatal = isinstance(error, FATAL) and not isinstance(error, errors.SourceAccessError)
        known = isinstance(error, errors.StreamLDAError)
        if fatal or not known or not (away or self._opened):
            raise error
        log_failure("infer-failed", error)
        self._close()
        self._status.show(self._retry.note_failure(time.monotonic(), name_reason(error)))

    def _close(self) -> None:
        exchange, self._exchange = self._exchange, None
        letters, self._letters = self._letters, None
        for part in (exchange, letters):
            try:
                if part is not None:
                    part.close()
            except Exception as error:
                # It is given up all the same; the thread must continue.
                log_failure("infer-close-failed", error)

    def _step(self) -> None:
        if self._exchange is None:
            if self._newest.find() is None:
                self._ended.wait(WAIT_SECONDS)
                return
            topic, kafka = self._settings.dead_letters.topic, self._settings.kafka
            self._letters = open_letters(topic, kafka)
            put = None if self._letters is None else self._letters.put
            self._exchange = open_exchange(self._settings, put)
            self._opened = True
        received = self._exchange.poll(POLL_RECORDS, WAIT_SECONDS)
        if received.batch.n_records:
            self._answer(self._exchange, received)
        else:
            self._status.show(self._retry.note_success(time.monotonic()))
        if time.monotonic() - self._logged_at >= LOG_SECONDS:
            self.log()

    def _answer(self, exchange: Any, records: KeyedBatch) -> None:
        newest = self._newest.find()
        assert newest is not None
        self._check_private(newest)
        answers = make_answers(records, newest, self._settings)
        if self._letters is not None:
            self._letters.flush(FLUSH_SECONDS)
        if not exchange.commit(answers):
            # Another member has the partitions now.
            log("debug", "infer-moved", records=records.batch.n_records)
            self._close()
            return
        unreadable = records.batch.n_documents - len(answers)
        rejected = len(records.batch.rejects) + unreadable
        self.records["inferred"] += len(answers)
        self.records["rejected"] += rejected
        self.lost, self._snapshot = exchange.source.lost()["records"], newest.number
        self._status.show(self._retry.note_success(time.monotonic()))

    def _check_private(self, newest: NamedModel) -> None:
        errors.require(
            self._settings.infer.disclose or not is_private(newest.model),
            "proportions by a private model tell of each document, and no promise covers them",
            disclose=False,
            remedy="set infer.disclose if these documents are not those of the "
            "promise, or all who read the topic may know them",
        )

    def log(self) -> None:
        """Log how far it is."""
        self._logged_at = time.monotonic()
        lag = [] if self._exchange is None else [*self._exchange.source.lag().values()]
        behind = sum(lag) if lag and None not in lag else None
        log(
            "info", "inference", **self.records, snapshot=self._snapshot, lost=self.lost, lag=behind
        )


def make_answers(received: KeyedBatch, newest: NamedModel, settings: RunSettings) -> list[Answer]:
    """Return a result for each document of a poll that could be read, in order."""
    batch = received.batch
    records = zip(batch.texts, batch.locations, received.keys, strict=True)
    rows = [(text, at, key) for text, at, key in records if text is not None]
    if not rows:
        return []
    found = infer(newest, [text for text, _, _ in rows], settings.infer.top)
    answers = []
    for (_, at, key), tokens, topics, why in zip(rows, *found, strict=True):
        if why == UNREADABLE:
            continue
        topic, _, number = at.location.rpartition("/")
        value: Mapping[str, Any] = {
            "topic": topic,
            "partition": int(number),
            "offset": at.record - 1,
            **({} if settings.source.id_field is None else {"id": at.id}),
            "model": {"snapshot": newest.number, "digest": newest.digest},
            "tokens": tokens,
            "topics": topics,
        }
        answers.append(Answer(int(number), key, orjson.dumps(value)))
    return answers


def run(path: str, settings: RunSettings) -> int:
    """Infer in the foreground until SIGTERM or SIGINT; return the exit code.

    Raises what only a person can mend. The end waits for the open transaction.
    """
    inference = Inference(settings, NewestModel(Path(path)))
    watch_signals(lambda number: inference.end(), late=lambda: leave(exit_codes.UNFINISHED))
    inference.run()
    inference.log()
    return exit_codes.OK
