"""The model from the releases of a ledger: noisy sums that were paid for, read again.

A run that was cut short in a round of refinement, or before it could write its model, has released
all that topics need. No record is read here, no noise is drawn and nothing is charged: the ledger
and the files beside it are all there is to it, and both stay as they are.
"""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamlda.container import ArraysFile, read_arrays, valid_content
from streamlda.errors import InsufficientDataError, StreamLDAError, failure, require
from streamlda.model.model_file import vocabulary_from
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.events import Approximate, GaussianRelease, from_json, unknown
from streamlda.privacy.ledger import Ledger, read_report
from streamlda.privacy.ledger.ledger import holds
from streamlda.privacy.prefix_release import SAME_NOISE
from streamlda.private.common_words import WORDS
from streamlda.private.learner import PrivateLearner
from streamlda.private.public_start import PUBLIC_ARRAYS, PublicTopics
from streamlda.private.release_manager import RELEASE_FORMAT, RELEASE_VERSION
from streamlda.private.settings import PrivateSettings
from streamlda.private.snapshot_model import model_of, statement_of
from streamlda.private.window import PREFIX, PrivateSnapshot

Release = Mapping[str, Any]


def load_released(ledger: str | os.PathLike[str], release: int | None = None) -> TopicModel:
    """Return the model of the newest window in a ledger, complete or not; or that of a release.

    Raises `InsufficientDataError`, with the reason, where what was released gives no topics.
    """
    report = read_report(ledger)
    folder = Path(os.path.realpath(ledger)).parent
    files: list[tuple[Release, ArraysFile]] = []
    for paid in _window(report["snapshots"], release):
        path = folder / (paid["artifact"] or "")
        if paid["digest"] is None or not holds(path, paid["digest"]):
            # It was lost; those before it stand.
            break
        files.append((paid, read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION)))
    if not files or "vocabulary" not in files[0][1].metadata:
        raise failure(
            "the first release of a window, or its words, cannot be read",
            releases=len(report["snapshots"]),
            readable=len(files),
            remedy="releases that are lost give no model",
            error=InsufficientDataError,
        )
    remedy = "its topics are made by the version that wrote it"
    with valid_content("release", folder, remedy=remedy, but=(StreamLDAError,)):
        return _make_from(files, report)


def _make_from(paid: Sequence[tuple[Release, ArraysFile]], report: Mapping[str, Any]) -> TopicModel:
    files = [file for _, file in paid]
    begun, newest = files[0].metadata, files[-1].metadata
    settings = PrivateSettings.of(begun["settings"])
    multipliers = [_multiplier(release, settings) for release, _ in paid]
    snapshot = _replay(settings, files)
    paid_stages = zip(snapshot.stages, multipliers, strict=False)
    stages = tuple(replace(stage, noise_multiplier=z) for stage, z in paid_stages)
    snapshot = replace(snapshot, number=1, stages=stages)
    said = statement_of(
        snapshot,
        settings,
        epsilon=settings.epsilon,
        delta=begun["delta"],
        vocabulary=begun["columns"],
        secure=all(file.metadata["secure"] for file in files),
        ledger=report["ledger_id"],
        generation=report["generation"],
    )
    words = vocabulary_from(begun["vocabulary"], files[0].arrays.get("words"))
    return model_of(snapshot, settings, said, words, newest["facts"])


def describe_spending(ledger: Ledger, before: int = 0) -> str:
    """Return a message for a run that fails: the spending of its ledger, and its use.

    "" where it has no more releases than `before` the run.
    """
    if ledger.generation <= before:
        return ""
    report, path = ledger.report(), ledger.path
    try:
        missing = load_released(path).privacy.get("missing")
    except (StreamLDAError, OSError) as error:
        then = f"they give no model of the newest window: {error}"
    else:
        of = f"incomplete, without {', '.join(missing)}" if missing else "complete"
        then = (
            f"they give a model of the newest window ({of}): streamlda budget "
            f"{shlex.quote(str(path))} --publish MODEL"
        )
    return (
        f"spent: epsilon={report['spent']['epsilon']:.4g} of {report['budget']['epsilon']:g} by "
        f"releases={len(report['snapshots'])} of ledger={str(path)!r}; their documents cannot be "
        f"released again; the noisy sums and words released so far are public, in "
        f"{path}.releases; a run with a checkpoint folder can finish its window; {then}"
    )


def _multiplier(release: Release, settings: PrivateSettings) -> float:
    """Return the noise multiplier that a release was paid for with, by the ledger.

    What the settings say of it here must be the same but for rounding: topics are made by it.
    """
    match from_json(release["event"]):
        case Approximate(GaussianRelease(paid)) | GaussianRelease(paid):
            require(
                math.isclose(paid, settings.noise_multiplier, rel_tol=SAME_NOISE),
                "the noise of a release is not what its settings say",
                release=release["intent"],
                noise_multiplier=paid,
                settings=settings.noise_multiplier,
                remedy="make its model with the version of streamlda that released it",
                error=InsufficientDataError,
            )
            return paid
        case event:
            raise unknown(event)


def _window(releases: Sequence[Release], number: int | None) -> Sequence[Release]:
    """Return the releases of a window, none without its first stage: by number, or the newest."""
    at = releases[-1:] if number is None else [r for r in releases if r["intent"] == number]
    rule, remedy = "the ledger has no such release", "see streamlda budget FILE --json"
    there = bool(at) or number is None
    require(there, rule, release=number, releases=len(releases), remedy=remedy)
    if not at:
        return ()
    own = [release for release in releases if release["run"] == at[0]["run"]]
    names = [release["description"] for release in own]
    first = [
        i
        for i, name in enumerate(names)
        if name == "norms" or (name in ("pairs", WORDS) and names[i - 1 : i] != ["norms"])
    ]
    here = own.index(at[0])
    begin = max((i for i in first if i <= here), default=None)
    if begin is None:
        return ()
    return own[begin : min((i for i in first if i > here), default=len(own))]


def _replay(settings: PrivateSettings, files: Sequence[ArraysFile]) -> PrivateSnapshot:
    """Return the snapshot of a window that takes noisy sums in their order."""
    public = None
    if settings.public_model is not None:
        public = PublicTopics.of_arrays(files[0].arrays, PUBLIC_ARRAYS, settings.public_model)
    learner = PrivateLearner(settings, first_slot=files[0].metadata["first"], public=public)
    for file in files:
        learner.replay(file.metadata["last"] + 1, dict(file.arrays))
        if learner.private.missed and file.metadata["stage"] != PREFIX:
            raise InsufficientDataError(learner.private.missed)
    return learner.get_released() if learner.last is None else learner.last
