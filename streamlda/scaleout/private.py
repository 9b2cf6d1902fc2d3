"""Private topics by sums of many workers: what is summed next, and its release.

The sums of a stage are sums of *groups*: runs of slots of the whole stream, each summed in
floating point by itself and rounded to the grid (`streamlda.private.stage`). Groups add as whole
numbers. So a task takes whole groups, wherever shards begin and end, and the raw sums that
come together at the driver are, number for number, those of one process: what is proven of its
releases holds here. Who sums what follows from the number of records, which is as public as
slots are.

Workers see raw documents and hold raw sums. They draw no noise, so a task that is done twice
releases nothing; everything that is published goes through the one ledger of the driver.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, SourceError
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
from streamlda.scaleout.cluster import Run, check_cluster, listed
from streamlda.scaleout.files import SHARDS
from streamlda.scaleout.shards import Corpus, Piece, Shard, batches_of, count_rows, task_of
from streamlda.scaleout.sums import Span, Stage, Sums, check_whole, merge
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import State

if TYPE_CHECKING:
    from distributed import Client

#: What is summed first where there is a ledger: which rows there are, and nothing of them else.
ROWS = "rows"


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateStage(Stage):
    """Slots of the stream, its one span, to be summed in whole groups.

    Slot n is the n-th record of the corpus, whatever it holds. All of the stage is of releases that
    were made before, and so public; with a `key` it notes rows for a ledger.
    """

    name: str
    group_slots: int
    key: FingerprintKey | None = field(default=None, repr=False)
    #: The engine before the stage; none for `ROWS`.
    state: State | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """Its name."""
        return self.name.replace(" ", "-")

    def slots(self, parts: int) -> list[Span]:
        """Cut the slots at the ends of groups into at most N parts of about equal size."""
        ((first, last),) = self.spans
        groups = math.ceil((last - first) / self.group_slots)
        step = self.group_slots * math.ceil(groups / parts)
        return [(begin, min(begin + step, last)) for begin in range(first, last, step)]

    def sums_of(self, documents: Any, slots: Span) -> Sums:
        """Sum a run of slots, of `slots`: a document for each, an empty one where there is none."""
        shard, counts = Shard("slots {}-{}".format(*slots)), RecordCounts()
        with task_of(shard):
            rows = batches_of(shard, documents, self.vocabulary, counts, slots=True)
            return self.sum_rows(rows, slots, counts)

    def sum_rows(self, batches: Iterable[DocumentBatch], slots: Span, counts: RecordCounts) -> Sums:
        """Sum the rows of a run of slots, a row for each; `counts` is filled as they come."""
        (begin, end), ((first, last),) = slots, self.spans
        whole = (begin - first) % self.group_slots == 0
        whole &= end == last or (end - first) % self.group_slots == 0
        require(
            whole and first <= begin < end <= last,
            "slots that are summed together must be whole groups of the stage",
            slots=f"{begin}-{end}",
            stage=self.name,
            first=first,
            last=last,
            group_slots=self.group_slots,
            remedy="take runs that PrivateStage.slots returns",
        )
        engine = None if self.state is None else PrivateEngine.from_state(*self.state)
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
        return Sums(
            self.stage_id, (slots,), sums, counts, ((slots, values_of_fingerprints(documents)),)
        )


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
    spans = ((engine.slots, last),)
    how: dict[str, Any] = {"vocabulary": vocabulary, "key": key}
    return PrivateStage(
        name=stage.name, spans=spans, group_slots=group, state=engine.state(), **how
    )


def take_sums(learner: PrivateLearner, stage: PrivateStage, found: Sums) -> None:
    """Give a learner the sums of all slots of a stage; the caller releases what is due."""
    check_whole(stage, found)
    running, provenance = learner.engine.stage, learner.releaser.provenance
    assert running is not None
    ((first, last),) = stage.spans
    learner.engine.skip(last - first)
    for block, sums in found.arrays.items():
        running.aggregates[block] += sums
    if provenance is not None:
        provenance.add_values(_values(found))


def _values(found: Sums) -> Values:
    """Return the values of the rows that were noted."""
    return np.concatenate([part for _, part in found.parts])


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
        What is to be summed next, by its `sums_of`; None at the end.

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
            how: dict[str, Any] = {"vocabulary": vocabulary, "key": self._key}
            self.stage = PrivateStage(name=ROWS, spans=((0, slots),), group_slots=1, **how)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        ledger = self._learner.releaser.ledger
        if error is not None and ledger is not None and (said := spent(ledger, self._before)):
            error.add_note(said)

    def release(self, found: Sums) -> None:
        """Pay for the merged sums of the stage, release them, and go on to the next stage.

        Parameters
        ----------
        found : Sums
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
            check_whole(self.stage, found)
            self._know(_values(found))
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


def fit_privately(
    client: Client,
    corpus: Corpus,
    settings: PrivateSettings,
    releaser: ReleaseManager,
    vocabulary: Vocabulary | None = None,
    public: PublicTopics | None = None,
) -> TopicModel:
    """Learn topics privately; the same releases as from one process over all shards.

    Every record of a file, and every row of a partition, takes a slot of the stream, in the order
    of the shards. Each shard is read once to count its records, once for the ledger, if there is
    one, and once or twice for its stages. A window that the documents do not fill up gives no
    snapshot, as in one process. All else is said at `PrivateFit`.
    """
    check_allowed(settings, releaser, vocabulary)
    check_cluster(client)
    run = Run(client)
    lengths = row_counts(run, corpus)
    with PrivateFit(settings, releaser, sum(lengths), vocabulary, public) as fit:
        while fit.stage is not None:
            fit.release(_sums(run, corpus, lengths, fit.stage))
        return fit.model()


def summed_stages(
    client: Client,
    corpus: Corpus,
    learner: PrivateLearner,
    vocabulary: Vocabulary | None,
    slots: int,
) -> Iterator[RecordCounts]:
    """Sum one stage after the other on the workers, and yield what was met in it.

    The caller makes what is due, and what may end there, before it goes on; the `slots` are those
    that it noted for a ledger.
    """
    check_cluster(client)
    run = Run(client)
    lengths = row_counts(run, corpus)
    require(
        slots == sum(lengths),
        "workers must find the records that the ledger will know",
        records=sum(lengths),
        known=slots,
        remedy="nothing was released: fit files that nobody writes to, and that all machines see "
        "alike",
        error=SourceError,
    )
    check_slots(slots, learner.settings)
    while (stage := stage_of(learner, slots, vocabulary)) is not None:
        found = _sums(run, corpus, lengths, stage)
        take_sums(learner, stage, found)
        yield found.counts


def row_counts(run: Run, corpus: Corpus) -> list[int]:
    """Return how many slots each shard takes: rows of a partition, records of files."""
    tasks = [
        run.task("slots", count_rows, shard, run.given(value))
        for shard, value in zip(corpus.shards, corpus.values, strict=True)
    ]
    counted: list[int] = run.compute(run.task("slots", listed, *tasks))
    return counted


def _sums(run: Run, corpus: Corpus, lengths: Sequence[int], stage: PrivateStage) -> Sums:
    """Sum a stage on the workers."""
    shared = run.given(stage)
    given = Corpus(corpus.shards, tuple(map(run.given, corpus.values)))
    leaves = []
    for first, last in stage.slots(SHARDS):
        pieces, values = given.pieces(lengths, first, last)
        leaves.append(run.task(stage.kind, sum_groups, shared, (first, last), pieces, *values))
    found: Sums = run.compute(run.tree("merge", merge, leaves))
    return found


def sum_groups(stage: PrivateStage, slots: Span, pieces: list[Piece], *values: Any) -> Sums:
    """Sum the rows of some pieces, which are these slots of a stage. A task."""
    counts = RecordCounts()
    return stage.sum_rows(_rows(stage.vocabulary, counts, pieces, values), slots, counts)


def _rows(
    vocabulary: Vocabulary | None, counts: RecordCounts, pieces: list[Piece], values: Sequence[Any]
) -> Iterator[DocumentBatch]:
    for piece, value in zip(pieces, values, strict=True):
        shard, first, last = piece.shard, piece.first, piece.last
        with task_of(shard):
            yield from batches_of(
                shard, value, vocabulary, counts, slots=True, first=first, last=last
            )
