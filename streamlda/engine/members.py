"""Engines that can be merged: those of one beginning, and those that have none yet.

A *beginning* is a projection, for engines that sum, or the start of a refinement
(`streamlda.refinement.shared_start`). Members of it are merged by their sums, whatever their order.
Until there is one, engines of a group *gather*: they keep their documents, and a merged one is an
engine that has read those of all, mixed. A member is merged with one that still gathers as if that
had begun where it did.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import Arrays, State, named, with_prefix
from streamlda.checks import failure, require
from streamlda.documents import DocumentBatch
from streamlda.engine.phase import Counters, Phase, fed
from streamlda.engine.refining import Refinement
from streamlda.engine.rounds import SharedSums, WarmUp
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.engine.warmup import WARMUP_MAX_ENTRIES, better_projection, projection_digest
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.measures import ExpectedTokens
from streamlda.refinement.schedule import stream_settings
from streamlda.refinement.shared_start import SharedStart
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import HeldOutPairs

Array = NDArray[np.float64]

#: What members can begin with: a projection, shape (d, m), or the start of a refinement.
Beginning = Array | SharedStart

#: Settings that have no effect on what members keep.
_WITHOUT_EFFECT = ("refine", "warmup_documents")


@dataclass(eq=False)
class Gathering(Phase):
    """All documents, until there is a beginning; those of one engine, or of several merged ones.

    Memory: 12 bytes a count. Who calls makes a beginning once there is `enough`.
    """

    #: The batches of each engine.
    batches: list[list[DocumentBatch]] = field(default_factory=lambda: [[]])
    _alone: Phase | None = None

    def add(self, batch: DocumentBatch, start: int) -> int:
        """Keep all documents."""
        part = batch.rows(start, batch.n_documents).copy()
        self.batches[0].append(part)
        self._alone = None
        return part.n_documents

    @property
    def parts(self) -> list[DocumentBatch]:
        """The documents of each engine that has any."""
        self.batches[:] = [[DocumentBatch.joined(each)] if each else [] for each in self.batches]
        return [each[0] for each in self.batches if each]

    @property
    def most_documents(self) -> int:
        """Documents of a good beginning: those that a stream is annealed over."""
        steps = stream_settings(self.settings.warmup_documents)
        return steps.annealing_steps * steps.batch_documents

    @property
    def enough(self) -> bool:
        """Whether there are documents, or counts, for a good beginning."""
        documents = self.counters.documents_seen
        entries = sum(len(part.counts) for each in self.batches for part in each)
        return documents >= self.most_documents or entries >= WARMUP_MAX_ENTRIES

    def alone(self) -> Phase:
        """Return the phase of an engine that has read all of them, each part evenly spread."""
        if self._alone is None:
            phase: Phase = WarmUp(self.settings, Counters(), self.settings.refines)
            parts = self.parts
            self._alone = fed(phase, _mixed(parts)) if parts else phase
        return self._alone

    def rounds(self) -> list[Moments]:
        """Return the sums of that engine."""
        return self.alone().rounds()

    def held_out(self) -> HeldOutPairs | None:
        """Return the pairs of that engine."""
        return self.alone().held_out()

    def snapshot(self) -> TopicModel:
        """Return the model of that engine."""
        return self.alone().snapshot()

    def expected(self) -> ExpectedTokens | None:
        """Return the tokens that that engine has found."""
        return self.alone().expected()

    def documents(self) -> DocumentBatch | None:
        """Return the documents that that engine keeps."""
        return self.alone().documents()

    def merged(self, others: Sequence[Gathering]) -> Gathering:
        """Return one phase with the documents of all."""
        batches = [[part] for each in (self, *others) for part in each.parts]
        return Gathering(self.settings, self.counters, batches or [[]])

    def state(self) -> State:
        """Return the documents of each part."""
        arrays: Arrays = {}
        parts = self.parts
        for number, part in enumerate(parts):
            arrays |= with_prefix(part.arrays, f"gathered.{number}.")
        return arrays, {"gathered": len(parts)}

    @classmethod
    def from_state(cls, settings: EngineSettings, counters: Counters, saved: State) -> Self:
        """Go on from what `state` returned, bit for bit."""
        arrays, values = saved
        own = [named(arrays, f"gathered.{number}.") for number in range(values["gathered"])]
        parts = [
            DocumentBatch(**each, n_features=settings.n_features, integral=False) for each in own
        ]
        return cls(settings, counters, [[part] for part in parts] or [[]])


def _mixed(parts: Sequence[DocumentBatch]) -> DocumentBatch:
    """Return all documents, those of each part evenly spread, whatever the order of the parts."""
    parts = sorted(parts, key=_content)
    places = [(np.arange(len(part)) + 0.5) / len(part) for part in parts]
    return DocumentBatch.joined(parts).take(np.argsort(np.concatenate(places), kind="stable"))


def _content(part: DocumentBatch) -> tuple[int, bytes]:
    digest = blake2b(digest_size=16)
    for _, array in sorted(part.arrays.items()):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return len(part), digest.digest()


def begun(
    settings: EngineSettings, counters: Counters, beginning: Beginning
) -> Refinement | SharedSums:
    """Return the phase of a member that has read nothing."""
    if isinstance(beginning, SharedStart):
        _check_start(beginning, settings)
        return Refinement.of_start(settings, counters, beginning)
    check_projection(beginning, settings)
    return SharedSums(settings, counters, Moments(beginning, settings.n_triple_columns))


def beginning_of(phase: Phase) -> Beginning | None:
    """Return what the engine of a phase began with, if others can begin with it too."""
    if isinstance(phase, SharedSums):
        return phase.moments.whitening
    return phase.shared if isinstance(phase, Refinement) else None


def new_beginning(phase: Phase) -> Beginning:
    """Return the beginning that a phase leads to; time of a snapshot, and O(d m^2).

    The topics of its snapshot, where they are refined, else the projection of its sums.
    """
    phase = phase.alone() if isinstance(phase, Gathering) else phase
    settings = phase.settings
    if settings.refines and not isinstance(phase, SharedSums):
        model = phase.snapshot()
        if "refinement" in model.diagnostics:
            return SharedStart.of_model(model, settings.warmup_documents)
    return better_projection(phase.rounds()[0], settings)


def merged(mine: Phase, other: Phase) -> Phase:
    """Return one phase of both, which goes on with the counters of the first.

    The other is not changed; sums are added to those of the first.
    """
    require(
        other is not mine,
        "an engine must be merged with another one, got the same engine twice",
        remedy="its documents would count twice",
    )
    both = mine, other
    gathering = [each for each in both if isinstance(each, Gathering)]
    _check_settings(mine, other, () if gathering else _WITHOUT_EFFECT)
    if len(gathering) == 2:
        return gathering[0].merged(gathering[1:])
    members = [each for each in both if not isinstance(each, Gathering)]
    beginnings = [beginning_of(each) for each in members]
    digests = [digest_of(each) for each in beginnings]
    first = beginnings[0]
    if first is None or digests[0] != digests[-1]:
        raise failure(
            "engines must have one beginning to be merged, got "
            f"beginning={','.join(str(digest) for digest in digests)}",
            remedy="make one (`streamlda projection`), and begin all of them with it",
        )
    for part in (part for each in gathering for part in each.parts):
        members.append(fed(begun(mine.settings, Counters(), first), part))
    into = begun(mine.settings, mine.counters, first)
    if isinstance(mine, Refinement | SharedSums):
        into = mine
    found: Phase = into.merged([each for each in members if each is not mine])
    return found


def digest_of(beginning: Beginning | None) -> str | None:
    """Return 16 hex digits that tell beginnings apart by content; None of none."""
    if isinstance(beginning, SharedStart):
        return beginning.digest
    return None if beginning is None else projection_digest(beginning)


def _check_settings(mine: Phase, other: Phase, but: Collection[str]) -> None:
    ours, theirs = asdict(mine.settings), asdict(other.settings)
    differing = [
        f"{name}={ours[name]!r},{theirs[name]!r}"
        for name in ours
        if ours[name] != theirs[name] and name not in but
    ]
    require(
        not differing,
        f"engines must have equal settings to be merged, got {' '.join(differing)}",
        remedy="run all of them with the same settings",
    )


def check_solver(settings: EngineSettings) -> None:
    """Raise unless the solver is the one that has beginnings to share."""
    require(
        settings.solver == WHITENED_TENSOR,
        f"projections are shared by engines with solver={WHITENED_TENSOR!r} alone",
        solver=settings.solver,
        remedy="others project the stream by their own; choose the other solver",
    )


def _check_start(start: SharedStart, settings: EngineSettings) -> None:
    check_solver(settings)
    require(
        settings.refines,
        "an engine with a shared start must refine",
        refine=settings.refine,
        remedy="leave it out, or begin with a projection of an engine that does not refine",
    )
    shape = start.stepwise.components.shape
    expected = settings.n_components, settings.n_features
    require(
        shape == expected,
        "a shared start must have the topics and words of the engine",
        shape=shape,
        expected=expected,
        remedy="use the vocabulary and n_components that it was made with, or make another one",
    )


def check_projection(whitening: Array, settings: EngineSettings) -> None:
    """Raise unless an engine of these settings can sum through a projection."""
    check_solver(settings)
    require(
        not settings.refine,
        "an engine with a shared projection must keep its sums, which can be merged",
        refine=settings.refine,
        remedy="leave it out",
    )
    expected = settings.n_features, settings.n_columns
    require(
        whitening.shape == expected,
        "a shared projection must have a row for each word and K + oversampling columns",
        shape=whitening.shape,
        expected=expected,
        remedy="use the vocabulary, n_components and oversampling that it was made with, or make "
        "another one",
    )
