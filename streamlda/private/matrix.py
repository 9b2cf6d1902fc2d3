"""Private fits of the rows of matrices, by the learner that an estimator holds.

Rows are record slots of one stream, in the order in which they come, whatever they hold. A ledger
knows them by that name, and by what is in them. It is open only while rows are read, so that other
fits may spend from it in between.
"""

import os
import secrets
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from math import isnan
from typing import Any

import numpy as np

from streamlda import errors
from streamlda.documents import MAX_TOKENS, DocumentBatch
from streamlda.guarantee.noise import Noise
from streamlda.learner import Users, feed
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.ledger.documents import values_of_fingerprints
from streamlda.private import process_account
from streamlda.private.learner import PrivateLearner
from streamlda.private.ledger_model import describe_spending
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import PrivateSettings


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


def learner_of_rows(
    settings: PrivateSettings, noise: Noise, stream: str, public: PublicTopics | None = None
) -> PrivateLearner:
    """Return a learner of rows that a ledger knows by the name of their `stream`."""
    releaser = ReleaseManager(noise, None, stream, run=secrets.token_hex(8))
    # The columns are those of the caller's matrix, who guarantees that they are public.
    how: Any = {"vocabulary": "columns of a matrix: public", "public": public}
    return PrivateLearner(settings, releaser, has_document=False, **how)


def fit_rows(
    learner: PrivateLearner,
    batch: DocumentBatch,
    users: Users | None,
    ledger: str | os.PathLike[str] | None,
    *,
    finish: bool = False,
) -> None:
    """Read rows, unless the ledger does not allow it; with `finish`, they are the last ones.

    Warns the caller of the estimator of windows that were paid for and gave no snapshot, and of
    missing topics. A call that fails when it may have read rows is the last one: they would be in
    two releases if it was repeated. Without a ledger the guarantee holds for this fit alone.
    """
    settings = learner.settings
    errors.require(
        learner.failed_at is None,
        "an earlier call of this private fit failed half way",
        slots=learner.failed_at,
        remedy="it has consumed that many record slots, maybe all rows of that call: its topics "
        "stay; fit another estimator with rows that no earlier call had",
    )
    users = _check_users(settings.privacy_unit, users, batch.n_documents)
    errors.require(
        learner.due is not None,
        "documents come after the last snapshot",
        snapshots=settings.snapshots,
        remedy="fit another estimator, with a budget of its own",
    )
    errors.require(
        not finish or batch.n_documents >= settings.least_slots,
        "the rows do not fill a window of slots",
        slots=batch.n_documents,
        documents_per_snapshot=settings.documents_per_snapshot,
        remedy="take smaller windows, or pass more rows; nothing was spent",
        error=errors.InsufficientDataError,
    )
    with nullcontext() if ledger is None else open_ledger(ledger, settings) as opened:
        warned, slots = _begin(learner, opened, batch), learner.slots
        before = 0 if opened is None or learner.progress.rounds else opened.generation
        try:
            _read(learner, batch, users, finish, warned)
        except BaseException as error:
            # What is refused before the first row leaves the fit as it was.
            if learner.slots > slots or not isinstance(error, errors.StreamLDAError):
                learner.failed_at = learner.slots
            if opened is not None and (message := describe_spending(opened, before)):
                error.add_note(message)
            if learner.failed_at is not None and learner.progress.rounds and not learner.models:
                error.add_note(_keep_released(learner))
            raise


def _keep_released(learner: PrivateLearner) -> str:
    """Take the topics of the releases of the running window; return the outcome."""
    try:
        model = learner.model_of(learner.get_released())
    except errors.InsufficientDataError as error:
        return f"what was released gives no topics: {error}"
    learner.models = [model]
    missing = ", ".join(model.privacy.get("missing", ()))
    return f"the estimator has the topics of what was released, without stages={missing}"


def _read(
    learner: PrivateLearner,
    batch: DocumentBatch,
    users: Users | None,
    finish: bool,
    warned: Sequence[str],
) -> None:
    lost, made = len(learner.lost), list[TopicModel]()
    try:
        feed(learner, batch, users, last=finish, on_model=made.append)
        if finish and learner.private.ends_well and (model := learner.release()) is not None:
            made.append(model)
    finally:
        # Also after an error on the way: what was released stays released.
        learner.models = made or learner.models
    if finish:
        learner.snapshot()
    messages = [*warned, *(f"a window gave no snapshot: {why}" for why in learner.lost[lost:])]
    said: list[tuple[str, type[UserWarning]]] = [(m, UserWarning) for m in messages]
    said += [(w, errors.TopicWarning) for model in made for w in model.diagnostics["warnings"]]
    for message, category in said:
        # An error too, where warnings are.
        warnings.warn(message, category, stacklevel=5)


def _begin(learner: PrivateLearner, ledger: Ledger | None, batch: DocumentBatch) -> list[str]:
    """Give a learner the open ledger, if that knows none of its first rows; return its warnings."""
    warned = list[str]()
    if ledger is not None:
        documents = ledger.key.of_rows(batch)
        if not learner.documents_seen:
            _check_new(ledger, learner.releaser.stream, documents)
            ledger.check(learner.settings.event)
        ledger.warn = warned.append
        learner.releaser.attach(ledger)
        # Later rows may have been released by others meanwhile; the releases will tell.
        learner.documents = documents
    elif learner.releaser.noise.secure:
        warned += _charge(learner, batch)
    return warned


def _check_new(ledger: Ledger, stream: str, documents: Sequence[bytes]) -> None:
    """Refuse rows that were in a release, by their content or by the name of their stream."""
    values = values_of_fingerprints(documents)
    remedy = "pass rows that no earlier call had: each may be in one release; nothing was spent"
    ledger.documents.check_new(values, ledger=str(ledger.path), remedy=remedy)
    released = ledger.records.reach(stream)
    errors.require(
        not released,
        "rows would be in two releases: the first ones of this stream were in one",
        stream=stream,
        released=released,
        ledger=str(ledger.path),
        remedy="pass rows that no earlier call had, under another name (stream=...)",
        error=errors.LedgerError,
    )


def _charge(learner: PrivateLearner, batch: DocumentBatch) -> list[str]:
    """Count rows that other fits of this process had, where no ledger does; return a warning."""
    fit, price = str(learner.releaser.run), learner.price_of_unit
    before = process_account.ACCOUNT.charge(fit, batch, price)
    if before.mu_squared <= learner.spent_before.mu_squared:
        return []
    learner.spent_before = before
    return [
        "rows were in earlier private fits of this process, and what all fits release of them adds "
        f"up: epsilon={learner.epsilon:.4g}, where each fit has "
        f"epsilon={learner.settings.epsilon:g}; pass other rows, or a ledger, which refuses these "
        "before they are paid for"
    ]


def _check_users(unit: str, users: Users | None, rows: int) -> Users | None:
    given = users is not None
    rule = "users are missing, or the privacy unit is the document"
    remedy = "pass users=..., or set privacy_unit='user'"
    errors.require((unit == "user") == given, rule, privacy_unit=unit, users=given, remedy=remedy)
    if users is None:
        return None
    # A column of a table has NaN where there is no user.
    users = [None if isinstance(user, float) and isnan(user) else user for user in users]
    if len(users) != rows:
        rule, remedy = "users are not as many as rows", "pass None for rows of nobody"
        values = {"n_users": len(users), "n_samples": rows}
        raise errors.failure(rule, **values, remedy=remedy, error=errors.InvalidDocumentsError)
    return users
