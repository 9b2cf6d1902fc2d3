"""A snapshot of a private run as a model, with its statement and notes on its topics."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from streamlda.model.topic_model import TopicModel
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.statement import private_statement, state_seeds
from streamlda.private.seeds import with_seeds
from streamlda.private.settings import PrivateSettings
from streamlda.private.topics import PrivateTopics
from streamlda.private.window import PrivateSnapshot
from streamlda.refinement.refine import of_start
from streamlda.spectral.support import Spectrum
from streamlda.spectral.topics import diagnostics
from streamlda.text.vocabulary import Vocabulary


def model_of(
    snapshot: PrivateSnapshot,
    settings: PrivateSettings,
    privacy: dict[str, Any],
    vocabulary: Vocabulary | None = None,
    further: Mapping[str, Any] | None = None,
) -> TopicModel:
    """Return a snapshot as a model with its privacy statement; `further` settings to record."""
    found, hidden = with_seeds(snapshot.topics, settings.seed_topics)
    notes = notes_of(found, settings.n_components)
    if hidden:
        notes["warnings"].append(
            f"seeded topics are not about their words, got others={len(hidden)}: "
            f"{', '.join(hidden)}, which documents or noise do not show; take more documents per "
            "snapshot, a larger epsilon, or more frequent words"
        )
    if snapshot.missing:
        notes["warnings"].append(
            "the window is incomplete, and topics come from what it released, without stages="
            + ", ".join(snapshot.missing)
        )
    return TopicModel(
        components=found.components,
        alpha=found.alpha,
        prevalence=found.prevalence,
        background=found.background,
        vocabulary=vocabulary,
        settings={**asdict(settings), **(further or {})},
        diagnostics=notes,
        documents_seen=sum(stage.last + 1 - stage.first for stage in snapshot.stages),
        privacy=privacy,
    )


def statement_of(
    snapshot: PrivateSnapshot, settings: PrivateSettings, *, secure: bool, **given: Any
) -> dict[str, Any]:
    """Return the privacy statement of a snapshot.

    `given` are epsilon of all fits of the documents, delta with that of a choice of words, the
    vocabulary, the ledger and its generation.
    """
    if not secure:
        return state_seeds()
    bounds = clip_bounds(settings, snapshot.bounds)
    if snapshot.topics.of_public:
        bounds = {"shares": bounds["shares"]}
    return private_statement(
        stages=snapshot.stages,
        missing=snapshot.missing,
        clip_bounds=bounds,
        secure=True,
        privacy_unit=settings.privacy_unit,
        documents_per_user=settings.documents_per_user,
        neighboring_relation=settings.neighboring_relation,
        mode=settings.mode,
        horizon=settings.snapshots if settings.mode == "prefix" else None,
        public_model=settings.public_model,
        seeds=bool(settings.seed_topics),
        **given,
    )


def clip_bounds(settings: PrivateSettings, bounds: ClipBounds) -> dict[str, tuple[float, str]]:
    """Return the clip bounds of the documents of a snapshot, and their sources."""
    names = ("first", "pair") if settings.refines else ("first", "pair", "triple")
    found: dict[str, tuple[float, str]] = {
        name: (getattr(bounds, name), bounds.source) for name in names
    }
    if settings.refines or settings.public_model is not None:
        found["shares"] = 1.0, "fixed"
    return found


def notes_of(topics: PrivateTopics, wanted: int) -> dict[str, Any]:
    """Return notes on published topics, with ``warnings`` in words.

    Moments speak of the ``start`` of topics that rounds have moved since; public topics have none.
    """
    notes: dict[str, Any] = {"warnings": []}
    if not topics.of_public:
        spectral = topics.spectral
        spectrum = Spectrum.pad(spectral.pair_eigenvalues, spectral.pair_noise)
        notes = diagnostics(spectral, spectrum, spectral.is_supported, None)
    if topics.refinement is not None:
        kept, net, noise = topics.refinement.tolist()
        if kept:
            notes = of_start(notes)
        else:
            notes["warnings"].append(
                "refined topics did not explain fresh documents better than word frequencies, "
                f"which are published (preferred={net:.0f}, noise={noise:.0f})"
            )
        if math.isfinite(net):
            of = "refinement" if kept else "start"
            notes["refinement_choice"] = {"kept": of, "preferred": net, "noise": noise}
    if topics.ratio is not None:
        ratio, noise = math.exp(topics.ratio[0]), float(topics.ratio[1])
        notes["perplexity_over_frequencies"] = {"expected": ratio, "noise": ratio * noise}
    if topics.is_useless:
        notes["warnings"].append(describe_useless(topics))
    if topics.fits is not None:
        net, noise = topics.fits.tolist()
        notes["public_model"] = {"used": topics.of_public, "fits": net, "noise": noise}
        if not topics.of_public:
            notes["warnings"].append(
                "the public model does not fit the documents, and was not used "
                f"(fits={net:.0f}, noise={noise:.0f})"
            )
        elif net < 2 * noise:
            notes["warnings"].append(
                "noise may have decided that the public model fits the documents, and it was used "
                f"(fits={net:.0f}, noise={noise:.0f}); look whether its topics are theirs, or take "
                "more documents per snapshot, or a larger epsilon"
            )
    notes["mixed_with_background"] = topics.mixed.tolist()
    notes["topics_asked"] = wanted
    if len(topics.components) < wanted:
        notes["warnings"].append(
            f"{len(topics.components)} of {wanted} topics stand above the noise and are published; "
            "take more documents per snapshot, or a larger epsilon"
        )
    return notes


def describe_useless(topics: PrivateTopics) -> str:
    """Return a message about topics that predict no better than word frequencies."""
    assert topics.ratio is not None
    ratio, noise = np.exp(topics.ratio[0]), topics.ratio[1]
    return (
        "topics predict documents no better than their word frequencies, expected "
        f"perplexity={ratio:.2f} times theirs noise={ratio * noise:.2f}; take more documents per "
        "snapshot, fewer words, a larger epsilon, or a public model (privacy.public_model)"
    )
