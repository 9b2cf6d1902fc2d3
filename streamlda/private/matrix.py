"""A private fit of the rows of matrices: what the estimator holds in place of an engine.

Rows are record slots of one stream, in the order in which they come, whatever they hold. A ledger
knows them by that name, and by what is in them. It is open only while rows are read, so that other
fits may spend from it in between.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isnan
from typing import Any

import numpy as np

from streamlda.documents import MAX_TOKENS, DocumentBatch
from streamlda.errors import (
    InsufficientDataError,
    InvalidDocumentsError,
    LedgerError,
    StreamLDAError,
    TopicWarning,
    failure,
    require,
)
from streamlda.guarantee.noise import Noise
from streamlda.learner import Users, feed
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import Ledger, Provenance
from streamlda.privacy.ledger.documents import values_of_fingerprints
from streamlda.private import process_account
from streamlda.private.learner import PrivateLearner
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.released import spent
from streamlda.private.settings import PrivateSettings

#: The columns are those of the caller's matrix, who guarantees that they are public.
VOCABULARY = "columns of a matrix: public"

#: End of a refusal of rows.
UNSPENT_ROWS = "pass rows that no earlier call had: each may be in one release; nothing was spent"


def blank_invalid_rows(X: Any) -> Any:
    """Return a matrix in which rows that cannot be documents are blank, and `X` if none is.

    Such a row has an entry that is no whole number of tokens, or more tokens than a document can
    have. A refusal would show what one row holds.
    """
    import scipy.sparse

    if not (scipy.sparse.issparse(X) or np.asarray(X).dtype.kind in "biuf") or np.ndim(X) != 2:
        return X
    counts = scipy.sparse.csr_matrix(X, dtype=np.float64, copy=True)
    counts.sum_duplicates()
    with np.errstate(invalid="ignore"):
        wrong = ~((counts.data >= 0) & (counts.data == np.rint(counts.data)))
        wrong |= counts.data > MAX_TOKENS
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    invalid = np.bincount(rows[wrong], minlength=counts.shape[0]) > 0
    counts.data[wrong] = 0
    invalid |= np.bincount(rows, counts.data, minlength=counts.shape[0]) > MAX_TOKENS
    if not invalid.any():
        return X
    counts.data[invalid[rows]] = 0
    return counts


class MatrixFit:
    """Learns from the rows of matrices, and keeps the model of the last snapshot.

    Without a ledger nothing is remembered: the guarantee holds for this fit alone. `stream` names
    the rows in the ledger, `public` is the public model of the settings.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        noise: Noise,
        ledger: str | os.PathLike[str] | None,
        stream: str,
        public: PublicTopics | None = None,
    ) -> None:
        self.settings, self._public = settings, public
        #: Snapshots of the last call that gave any, oldest first.
        self.models: list[TopicModel] = []
        #: Slots consumed when a call failed half way.
        self.failed_at: int | None = None
        self._noise, self._ledger, self._stream = noise, ledger, stream
        self._learner: PrivateLearner | None = None
        #: Warnings of the running call.
        self._warnings: list[str] = []
        #: Names this fit in the account of the process.
        self._name = secrets.token_hex(8)

    def add(self, batch: DocumentBatch, users: Users | None, *, finish: bool = False) -> None:
        """Read rows, unless the ledger does not allow it; with `finish`, they are the last ones.

        Warns the caller of the estimator of windows that were paid for and gave no snapshot, and
        of missing topics. A call that fails when it may have read rows is the last one: they would
        be in two releases if it was repeated.
        """
        require(
            self.failed_at is None,
            "a private fit whose call failed half way must not read further rows",
            slots=self.failed_at,
            remedy="it has consumed that many record slots, maybe all rows of that call: its "
            "topics stay; fit another estimator with rows that no earlier call had",
        )
        users = self._checked(users, batch.n_documents)
        require(
            self._learner is None or self._learner.due is not None,
            "documents must not come after the last snapshot",
            snapshots=self.settings.snapshots,
            remedy="fit another estimator, with a budget of its own",
        )
        require(
            not finish or batch.n_documents >= self.settings.least_slots,
            "a private snapshot needs a whole window of slots",
            slots=batch.n_documents,
            documents_per_snapshot=self.settings.documents_per_snapshot,
            remedy="take smaller windows, or pass more rows; nothing was spent",
            error=InsufficientDataError,
        )
        with self._open() as ledger:
            learner = self._begin(ledger, batch)
            slots = learner.engine.slots
            before = 0 if ledger is None or learner.progress.rounds else ledger.generation
            try:
                self._read(learner, batch, users, finish)
            except BaseException as error:
                # What is refused before the first row leaves the fit as it was.
                if learner.engine.slots > slots or not isinstance(error, StreamLDAError):
                    self.failed_at = learner.engine.slots
                if ledger is not None and (message := spent(ledger, before)):
                    error.add_note(message)
                paid = learner.progress.rounds > 0
                if self.failed_at is not None and paid and self.model is None:
                    error.add_note(self._keep_released(learner))
                raise

    def _keep_released(self, learner: PrivateLearner) -> str:
        """Take the topics of what the running window has released; return what came of it."""
        try:
            self.models = [learner.model_of(learner.engine.released())]
        except InsufficientDataError as error:
            return f"what was released gives no topics: {error}"
        missing = ", ".join(self.models[0].privacy.get("missing_stages", ()))
        return f"the estimator has the topics of what was released, without stages={missing}"

    def _read(
        self, learner: PrivateLearner, batch: DocumentBatch, users: Users | None, finish: bool
    ) -> None:
        lost, made = len(learner.lost), list[TopicModel]()
        try:
            feed(learner, batch, users, last=finish, on_model=made.append)
            if finish and learner.private.ends_well and (model := learner.release()) is not None:
                made.append(model)
        finally:
            # Also after an error on the way: what was released stays released.
            self.models = made or self.models
        if finish:
            learner.snapshot()
        messages, self._warnings = self._warnings, []
        messages += [f"a window gave no snapshot: {message}" for message in learner.lost[lost:]]
        said: list[tuple[str, type[UserWarning]]] = [(m, UserWarning) for m in messages]
        said += [(w, TopicWarning) for model in made for w in model.diagnostics["warnings"]]
        for message, category in said:
            # An error too, where warnings are.
            warnings.warn(message, category, stacklevel=5)

    @property
    def model(self) -> TopicModel | None:
        """The newest model, None before the first."""
        return self.models[-1] if self.models else None

    @property
    def begun(self) -> bool:
        """True once rows were read."""
        return self._learner is not None

    @property
    def slots_missing(self) -> int:
        """Rows that the running window still needs; 0 if no snapshot is left."""
        if self._learner is None:
            return self.settings.documents_per_snapshot
        return self._learner.slots_missing

    def _open(self) -> AbstractContextManager[Ledger | None]:
        if self._ledger is None:
            return nullcontext()
        return open_ledger(self._ledger, self.settings)

    def _begin(self, ledger: Ledger | None, batch: DocumentBatch) -> PrivateLearner:
        """Return the learner, with the ledger open, if that knows none of the rows."""
        documents = [] if ledger is None else ledger.key.of_rows(batch)
        learner = self._learner
        if learner is None:
            provenance = None
            if ledger is not None:
                self._check_new(ledger, documents)
                provenance = Provenance(ledger.key, self._stream, by_slots=True)
            run = secrets.token_hex(8)
            learner = PrivateLearner(
                self.settings,
                ReleaseManager(self._noise, ledger, self._stream, provenance=provenance, run=run),
                vocabulary=VOCABULARY,
                public=self._public,
                has_document=False,
            )
        if ledger is not None:
            ledger.warn = self._warnings.append
            # Rows after these may have been released by others meanwhile; the releases will tell.
            learner.releaser.ledger, learner.documents = ledger, documents
        elif self._noise.secure:
            self._charge(learner, batch)
        self._learner = learner
        return learner

    def _check_new(self, ledger: Ledger, documents: Sequence[bytes]) -> None:
        """Refuse rows that were in a release, by what is in them or by the name of their stream."""
        values = values_of_fingerprints(documents)
        ledger.documents.check_new(values, ledger=str(ledger.path), remedy=UNSPENT_ROWS)
        released = ledger.records.reach(self._stream)
        require(
            not released,
            "rows must not be in two releases, and the first ones of this stream were in one",
            stream=self._stream,
            released=released,
            ledger=str(ledger.path),
            remedy="pass rows that no earlier call had, under another name (stream=...)",
            error=LedgerError,
        )

    def _charge(self, learner: PrivateLearner, batch: DocumentBatch) -> None:
        """Count rows that other fits of this process had, where no ledger does."""
        price = learner.price_of_unit
        before = process_account.ACCOUNT.charge(self._name, batch, price)
        if before.mu_squared > learner.spent_before.mu_squared:
            learner.spent_before = before
            self._warnings.append(
                "rows were in earlier private fits of this process, and what all fits release of "
                f"them adds up: epsilon={learner.epsilon:.4g}, where each fit has "
                f"epsilon={self.settings.epsilon:g}; pass other rows, or a ledger, which refuses "
                "these before they are paid for"
            )

    def _checked(self, users: Users | None, rows: int) -> Users | None:
        unit, given = self.settings.privacy_unit, users is not None
        rule = "users must be given where they are the privacy unit, and only there"
        remedy = "pass users=..., or set privacy_unit='user'"
        require((unit == "user") == given, rule, privacy_unit=unit, users=given, remedy=remedy)
        if users is None:
            return None
        # A column of a table has NaN where there is no user.
        users = [None if isinstance(user, float) and isnan(user) else user for user in users]
        if len(users) != rows:
            rule, remedy = "users must name the user of each row", "pass None for rows of nobody"
            values = {"n_users": len(users), "n_samples": rows}
            raise failure(rule, **values, remedy=remedy, error=InvalidDocumentsError)
        return users
