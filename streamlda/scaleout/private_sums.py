"""Private topics by sums of other machines: what is summed next, and its release.

The sums of a stage are sums of *groups*: runs of slots of the whole stream, each summed in
floating point by itself and rounded to the grid (`streamlda.private.stage`). Groups add as whole
numbers. So a task takes whole groups, wherever the shards begin and end, and the raw sums that
come together at the driver are, number for number, those of one process: what is proven of its
releases holds here. What decides who sums what is the number of records, which is as public as
slots are.

Workers see raw documents and hold raw sums. They draw no noise, so a task that is done twice
releases nothing; everything that is published goes through the one ledger of the driver.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import FingerprintKey, Provenance
from streamlda.privacy.ledger.documents import Values, values_of_fingerprints
from streamlda.privacy.ledger.fingerprints import fingerprints_of
from streamlda.private.budget import STATEMENTS, check_first_price
from streamlda.private.engine import PrivateEngine
from streamlda.private.learner import PrivateLearner
from streamlda.private.matrix import UNSPENT_ROWS, VOCABULARY
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.released import spent
from streamlda.private.settings import PrivateSettings
from streamlda.scaleout.sums import added
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import State

#: What is summed first where there is a ledger: which rows there are, and nothing of them else.
ROWS = "rows"


@dataclass(frozen=True, eq=False)
class Aggregates:
    """Raw sums of some groups of a stage, which is known by its `stage_id`, in steps of the grid.

    `slots` are the runs of slots of the stream that are in it, each from and to (not included), and
    `documents` the values of the rows that they hold, where a ledger is to know them.
    """

    stage_id: str
    sums: Mapping[str, NDArray[np.int64]] = field(repr=False)
    slots: tuple[tuple[int, int], ...]
    counts: RecordCounts
    documents: Values = field(repr=False)


def merged(one: Aggregates, *others: Aggregates) -> Aggregates:
    """Return the sums of disjoint sets of groups; none of them is changed."""
    parts = [one, *others]
    for part in others:
        check_same_stage(one.stage_id, part.stage_id)
    slots = sorted(own for part in parts for own in part.slots)
    for (_, last), (first, _) in pairwise(slots):
        require(
            last <= first,
            "each slot must be summed once",
            first=first,
            last=last,
            remedy="merge sums of disjoint slots",
        )
    sums = {name: counts.copy() for name, counts in one.sums.items()}
    for part in others:
        for name, counts in sums.items():
            counts += part.sums[name]
    documents = np.concatenate([part.documents for part in parts])
    counted = added(part.counts for part in parts)
    return Aggregates(one.stage_id, sums, tuple(slots), counted, documents)


def check_same_stage(one: str, other: str) -> None:
    """Refuse sums of another stage: they were clipped by other bounds, so noise would not do."""
    require(
        one == other,
        "private sums must be of the stage that is released",
        stages=f"{one},{other}",
        remedy="sum the documents through PrivateFit.stage, and keep no sums from one stage to the "
        "next or from one fit to another",
    )


@dataclass(frozen=True, eq=False)
class PrivateStage:
    """Slots `first` to `last` (not included) of the stream, to be summed in whole groups.

    Slot n is the n-th record of the corpus, whatever it holds. All of the stage is of releases that
    were made before, and so public; with a `key` it notes rows for a ledger.
    """

    name: str
    first: int
    last: int
    group_slots: int
    vocabulary: Vocabulary | None = field(default=None, repr=False)
    key: FingerprintKey | None = field(default=None, repr=False)
    #: The engine before the stage; none for `ROWS`.
    _state: State | None = field(default=None, repr=False)
    #: Random, so that sums of this stage are told from those of any other, in any fit.
    stage_id: str = field(default_factory=partial(secrets.token_hex, 8))

    def cuts(self, parts: int) -> list[tuple[int, int]]:
        """Cut the slots at the ends of groups into at most N parts of about equal size."""
        groups = math.ceil((self.last - self.first) / self.group_slots)
        step = self.group_slots * math.ceil(groups / parts)
        return [
            (begin, min(begin + step, self.last)) for begin in range(self.first, self.last, step)
        ]

    def sums_of(
        self, batches: Iterable[DocumentBatch], slots: tuple[int, int], counts: RecordCounts
    ) -> Aggregates:
        """Sum the rows of a run of slots, a row for each; `counts` is filled as they come."""
        begin, end = slots
        whole = (begin - self.first) % self.group_slots == 0
        whole &= end == self.last or (end - self.first) % self.group_slots == 0
        require(
            whole and self.first <= begin < end <= self.last,
            "slots that are summed together must be whole groups of the stage",
            slots=f"{begin}-{end}",
            stage=self.name,
            first=self.first,
            last=self.last,
            group_slots=self.group_slots,
            remedy="take runs that PrivateStage.cuts returns",
        )
        engine = None if self._state is None else PrivateEngine.from_state(*self._state)
        if engine is not None:
            engine.skip(begin - engine.slots)
        documents, at = list[bytes](), begin
        for batch in batches:
            at += batch.n_documents
            if at > end:
                break
            if engine is not None:
                engine.add(batch)
            if self.key is not None:
                documents += fingerprints_of(batch, self.key)
        require(
            at == end,
            "there must be a row for each slot",
            rows=f"{at - begin}{'+' if at > end else ''}",
            slots=end - begin,
            remedy="pass an empty document where there is none, and let a shard come out the same "
            "each time",
            error=InvalidDocumentsError,
        )
        sums = {} if engine is None or engine.stage is None else engine.stage.state()
        values = values_of_fingerprints(documents)
        return Aggregates(self.stage_id, sums, (slots,), counts, values)


def stage_of(
    learner: PrivateLearner,
    slots: int,
    vocabulary: Vocabulary | None,
    key: FingerprintKey | None = None,
) -> PrivateStage | None:
    """Return what is to be summed next of a stream of N slots; None if nothing is."""
    engine = learner.engine
    stage, left = engine.stage, slots - engine.slots
    # A rest that gives no snapshot is not paid for.
    if stage is None or left <= 0 or learner.private.least_missing > left:
        return None
    group = stage.mechanism.group_max or stage.mechanism.n_max
    last = min(stage.last, slots)
    return PrivateStage(stage.name, engine.slots, last, group, vocabulary, key, engine.state())


def take_sums(learner: PrivateLearner, stage: PrivateStage, found: Aggregates) -> None:
    """Give a learner the sums of all slots of a stage; the caller releases what is due."""
    check_same_stage(stage.stage_id, found.stage_id)
    require(
        found.slots[0][0] == stage.first
        and found.slots[-1][1] == stage.last
        and sum(b - a for a, b in found.slots) == stage.last - stage.first,
        "every slot must be summed once",
        slots=len(found.slots),
        stage=stage.name,
        first=stage.first,
        last=stage.last,
        remedy="sum all of the stage, and let shards come out the same each time they are made",
        error=InvalidDocumentsError,
    )
    running, provenance = learner.engine.stage, learner.releaser.provenance
    assert running is not None
    learner.engine.skip(stage.last - stage.first)
    for block, sums in found.sums.items():
        running.aggregates[block] += sums
    if provenance is not None:
        provenance.add_values(found.documents)


def check_slots(slots: int, settings: PrivateSettings) -> None:
    """Raise `InsufficientDataError` unless a stream of N slots gives a snapshot."""
    require(
        slots >= settings.least_slots,
        "a private snapshot needs a whole window of record slots",
        slots=slots,
        documents_per_snapshot=settings.documents_per_snapshot,
        remedy="nothing was released: take smaller windows, or more documents",
        error=InsufficientDataError,
    )


class PrivateFit:
    """Private topics from sums that any engine takes, one stage after the other.

    The releases are those of one process, number for number, and noise is drawn here, after the
    ledger of the releaser was paid. Used in a ``with`` block, whose errors say what was paid.

    Parameters
    ----------
    settings : PrivateSettings
        Of documents, and in windows.
    releaser : ReleaseManager
        With a ledger, the first stage notes the rows, and a release of rows that the ledger knows
        is refused before anything is paid.
    slots : int
        Records of the corpus, which are public, whatever they hold.
    vocabulary : Vocabulary, optional
        By which texts are read: given or hashed. Left out for counts, whose columns are public.
    public : PublicTopics, optional
        The public model of the settings, if they name one.

    Attributes
    ----------
    stage : PrivateStage or None
        What is to be summed next, for `sums_of`; None at the end.

    Raises
    ------
    InsufficientDataError
        If the slots give no snapshot.
    BudgetExceededError, LedgerError
        If the ledger does not allow the first window.

    Notes
    -----
    Unit: a document, of one slot; relation, sensitivity and its derivation are those of one process
    (`streamlda.private.stage`), for a group is rounded to the grid by itself, so that neighbours
    differ in one group, on whatever machine it is summed. Public: settings, words, the number of
    slots. A document must have the same slot in all stages: in two of them it would pay for one
    and be in two. Number documents once, before the first stage, and keep the numbers; nothing
    here can see that an engine put them in another order.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        releaser: ReleaseManager,
        slots: int,
        vocabulary: Vocabulary | None = None,
        public: PublicTopics | None = None,
    ) -> None:
        check_allowed(settings, releaser, vocabulary)
        check_slots(slots, settings)
        ledger, self._key, self._before = releaser.ledger, None, 0
        self._slots, self._vocabulary = slots, vocabulary
        if ledger is not None:
            self._before, self._key = ledger.generation, ledger.key
            releaser.run = secrets.token_hex(8)
        name = VOCABULARY if vocabulary is None else STATEMENTS[vocabulary.kind]
        self._learner = PrivateLearner(settings, releaser, vocabulary=name, public=public)
        if self._key is None:
            self.stage = stage_of(self._learner, slots, vocabulary)
        else:
            self.stage = PrivateStage(ROWS, 0, slots, 1, vocabulary, self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        ledger = self._learner.releaser.ledger
        if error is not None and ledger is not None and (said := spent(ledger, self._before)):
            error.add_note(said)

    def release(self, found: Aggregates) -> None:
        """Pay for the merged sums of the stage, release them, and go on to the next stage.

        Parameters
        ----------
        found : Aggregates
            Of all slots of `stage`, by `merge`.

        Raises
        ------
        InvalidDocumentsError
            If a slot is missing; nothing is paid then.
        InvalidSettingError
            If the sums are of another stage, or of another fit; nothing is paid then.
        LedgerError
            If rows were in a release before; nothing is paid then.
        """
        require(self.stage, "there must be a stage to release", stage=None, remedy="call model()")
        assert self.stage is not None
        if self.stage.name == ROWS:
            check_same_stage(self.stage.stage_id, found.stage_id)
            self._know(found.documents)
        else:
            take_sums(self._learner, self.stage, found)
            if self._learner.due == 0 or self._learner.private.ends_well:
                self._learner.release(self._vocabulary)
        self.stage = stage_of(self._learner, self._slots, self._vocabulary, self._key)

    def model(self) -> TopicModel:
        """Return the topics of the last snapshot; `InsufficientDataError` before the first."""
        return self._learner.snapshot(self._vocabulary)

    def _know(self, documents: Values) -> None:
        """Let the ledger judge the rows before any of them is summed."""
        releaser = self._learner.releaser
        assert releaser.ledger is not None
        assert self._key is not None
        require(
            len(documents),
            "a private fit needs documents, and no row has a known word",
            remedy="check rows and words; nothing was spent",
            error=InsufficientDataError,
        )
        releaser.ledger.documents.check_new(
            documents, ledger=str(releaser.ledger.path), remedy=UNSPENT_ROWS
        )
        known = releaser.ledger.known
        releaser.provenance = Provenance(self._key, known, releaser.stream, by_slots=True)


def check_allowed(
    settings: PrivateSettings, releaser: ReleaseManager, vocabulary: Vocabulary | None
) -> None:
    """Raise unless stages can be summed in several places, and the ledger allows a window."""
    found = {
        "privacy_unit": (settings.privacy_unit, "document"),
        "mode": (settings.mode, "window"),
    }
    wrong: dict[str, Any] = {
        name: value for name, (value, wanted) in found.items() if value != wanted
    }
    require(
        not wrong,
        "a private fit on a cluster must be by documents and in windows",
        **wrong,
        remedy="users must be counted, and such sums kept, in one place: fit in one process",
    )
    if vocabulary is not None:
        # A private choice takes delta of its own, which the statement here would not know of.
        require(
            vocabulary.kind in ("given", "hashed"),
            "words must be public",
            kind=vocabulary.kind,
            remedy="bring a word list, use a hashed vocabulary, or fit in one process",
        )
        require(
            vocabulary.n_features == settings.n_features,
            "settings must be for the words that documents are read by",
            n_features=settings.n_features,
            words=vocabulary.n_features,
            remedy="pass n_features=vocabulary.n_features",
        )
    if releaser.ledger is not None:
        check_first_price(releaser.ledger, settings, stream=releaser.stream)
