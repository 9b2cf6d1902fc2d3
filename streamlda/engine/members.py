"""Engines that can be merged: those of one beginning.

A *beginning* is a projection, for engines that sum, or the start of a refinement
(`streamlda.refinement.shared_start`). Members of it are merged by their sums.
"""

from dataclasses import asdict

import numpy as np

from streamlda.engine.phase import Counters, Phase
from streamlda.engine.projections import better_projection, projection_digest
from streamlda.engine.refining import Refinement
from streamlda.engine.rounds import SharedSums
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.errors import require
from streamlda.refinement.shared_start import SharedStart
from streamlda.spectral.moments import Moments
from streamlda.utils.arrays import Array

#: What members can begin with: a projection, shape (d, m), or the start of a refinement.
Beginning = Array | SharedStart


def begin_member(
    settings: EngineSettings, counters: Counters, beginning: Beginning
) -> Refinement | SharedSums:
    """Return the phase of a member that has read nothing."""
    check_solver(settings)
    require(
        not settings.seed_topics,
        "seeded topics cannot begin with a shared start",
        seed_topics=len(settings.seed_topics),
        remedy="leave out the seeds or the shared start",
    )
    if isinstance(beginning, SharedStart):
        fits, shape = settings.refines, beginning.stepwise.totals.shape
        expected = settings.n_features, settings.n_components
    else:
        fits, shape = not settings.refine, beginning.shape
        require(
            np.isfinite(beginning).all(),
            "a shared projection has NaN or infinite entries",
            remedy="make another one",
        )
        expected = settings.n_features, settings.n_columns
    require(
        fits,
        "an engine that sums was given a start, or one that refines a projection",
        refine=settings.refine,
        remedy="leave it out, or begin otherwise",
    )
    require(
        shape == expected,
        "a shared beginning has other words, topics or oversampling than the engine",
        shape=shape,
        expected=expected,
        remedy="use the settings and the vocabulary that it was made with, or make another one",
    )
    if isinstance(beginning, SharedStart):
        return Refinement.of_start(settings, counters, beginning)
    return SharedSums(settings, counters, Moments(beginning, settings.n_triple_columns))


def get_beginning(phase: Phase) -> Beginning | None:
    """Return what the engine of a phase began with, if others can begin with it too."""
    if isinstance(phase, SharedSums):
        return phase.moments.whitening
    return phase.shared if isinstance(phase, Refinement) else None


def new_beginning(phase: Phase) -> Beginning:
    """Return the topics of a snapshot, where they are refined, else the projection of the sums."""
    settings = phase.settings
    check_solver(settings)
    if settings.refines and not isinstance(phase, SharedSums):
        model = phase.snapshot()
        if "refinement" in model.diagnostics:
            return SharedStart.of_model(model, settings.warmup_documents)
    return better_projection(phase.rounds()[0], settings)


def merge(mine: Phase, other: Phase) -> Phase:
    """Return one phase of both, which continues with the counters of the first.

    The other is not changed; sums are added to those of the first.
    """
    require(
        other is not mine,
        "an engine cannot be merged with itself",
        remedy="its documents would count twice",
    )
    ours, theirs = asdict(mine.settings), asdict(other.settings)
    # Members keep the same whatever these two say.
    ours |= {name: theirs[name] for name in ("refine", "warmup_documents")}
    differing = [
        f"{name}={ours[name]!r},{theirs[name]!r}" for name in ours if ours[name] != theirs[name]
    ]
    require(
        not differing,
        f"engines to merge differ in settings, got {' '.join(differing)}",
        remedy="run all of them with the same settings",
    )
    digests = [digest_of(get_beginning(each)) for each in (mine, other)]
    require(
        digests[0] is not None and digests[0] == digests[1],
        f"engines to merge have no common start, got start={digests[0]},{digests[1]}",
        remedy="make one (`streamlda projection`), and begin all engines with it",
    )
    if isinstance(mine, SharedSums) and isinstance(other, SharedSums):
        mine.moments.merge(other.moments)
        return mine
    assert isinstance(mine, Refinement)
    assert isinstance(other, Refinement)
    return mine.merge_with(other)


def digest_of(beginning: Beginning | None) -> str | None:
    """Return 16 hex digits that tell beginnings apart by content; None of none.

    Starts of one group that follow each other have those of the first.
    """
    if isinstance(beginning, SharedStart):
        return beginning.origin
    return None if beginning is None else projection_digest(beginning)


def check_solver(settings: EngineSettings) -> None:
    """Raise unless the solver is the one that has beginnings to share."""
    require(
        settings.solver == WHITENED_TENSOR,
        "engines of this solver share no beginning",
        solver=settings.solver,
        remedy=f"choose {WHITENED_TENSOR!r}",
    )
