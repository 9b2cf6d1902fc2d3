"""Refinement by local steps on parts of the documents, averaged in rounds.

Documents are cut into L equal parts. In a round every part takes the next steps of a `StepwiseEM`
over its own documents, beginning from the topics of all; then the sums S of the parts are averaged,
and the next round begins from the mean. What a part adds in a step is additive and bounded, its
weights depend on the number of the step alone, so the mean is S of minibatches L times as large,
but for topics that are some steps old: a round may have many steps, and messages are few.

Small parts cost, not many: of 195,000 documents 2, 8 and 16 parts have perplexity 1340, 1347 and
1348, and 64 of 3,000 documents, which take steps of 30, 1425.

A fit that died reads the documents again, comes to the same start, and continues behind the last
round that was saved: its topics are those of a fit that was never cut short, to the last bit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

from streamlda.container import parse_arrays, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import HELD_OUT, hold_out, learned_before
from streamlda.refinement.schedule import LocalSchedule, annealed
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.faults import check
from streamlda.scaleout.store import Documents
from streamlda.scaleout.sums import FoldedStage, Span, Sums
from streamlda.utils.arrays import State


@dataclass(frozen=True, eq=False, kw_only=True)
class Refine(FoldedStage):
    """A round: every part takes the next steps from the topics of all; 8 V K bytes."""

    steps: int
    state: State = field(repr=False)
    #: True if held-out documents (`refinement.choice`) are skipped.
    skips_held_out: bool = False

    def learned(self, number: int) -> int:
        """Return how many documents before a number the stage takes."""
        return learned_before(number) if self.skips_held_out else number

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Take the steps of one part over its documents; time O(nnz K) each."""
        refinement = StepwiseEM.from_state(*self.state)
        number = self.learned(span[1]) - self.learned(span[0])
        before = refinement.steps
        ends = [number * step // self.steps for step in range(1, self.steps + 1)]
        if self.skips_held_out and span[0] < int(HELD_OUT[-1]):
            batches = drop_held_out(span[0], batches)
        for batch in cut_at(ends, batches):
            refinement.learn(batch)
        check(
            refinement.steps == before + self.steps,
            "steps",
            steps=refinement.steps - before,
            expected=self.steps,
        )
        arrays = {"totals": refinement.totals, "documents": np.array(number)}
        return Sums(self.stage_id, (span,), arrays)


def drop_held_out(number: int, batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield documents, which begin with this number, without those held out."""
    for batch in batches:
        yield hold_out(batch, number)[0]
        number += batch.n_documents


def cut_at(ends: Sequence[int], batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield runs of documents that end at these numbers, and are joined or cut for it."""
    waiting: list[DocumentBatch] = []
    at, left = 0, iter(ends)
    end = next(left, None)
    for batch in batches:
        low = 0
        while end is not None and at + batch.n_documents - low >= end:
            high = low + end - at
            yield DocumentBatch.joined([*waiting, batch.rows(low, high)])
            waiting.clear()
            at, low, end = end, high, next(left, None)
        if low < batch.n_documents:
            waiting.append(batch.rows(low, batch.n_documents))
            at += batch.n_documents - low


def refined_in_parts(
    documents: Documents,
    start: TopicModel,
    passes: int,
    *,
    skips_held_out: bool,
    saved: SavedRounds | None,
    on_round: Callable[[int, int], None],
) -> tuple[StepwiseEM, dict[str, Any]]:
    """Return the refinement of a start, behind all its rounds, and what was done."""
    plan, borders = documents.parts(passes, skips_held_out)
    plan = replace(plan, settings=annealed(plan.settings, start))
    given = start.components, start.alpha, start.background
    refinement, rounds, total = StepwiseEM.of_topics(*given, plan.settings), 0, passes * plan.rounds
    digest = digest_of(start, plan, borders[-1])
    if saved is not None and (before := saved.load(digest)) is not None:
        rounds, refinement = before[0], StepwiseEM.from_state(*before[1])
    while rounds < total:
        at, spans = rounds % plan.rounds, list[Span]()
        for begin, end in pairwise(borders):
            ends = ((end - begin) * n // plan.rounds for n in (at, at + 1))
            spans.append((begin + next(ends), begin + next(ends)))
        how = {"state": refinement.state(), "steps": plan.steps, "skips_held_out": skips_held_out}
        found = documents.summed(Refine, *spans, **how)[1].arrays
        refinement = StepwiseEM(
            found["totals"] / plan.parts,
            *(refinement.alpha, refinement.background, refinement.settings),
            steps=refinement.steps + plan.steps,
            documents=refinement.documents + int(found["documents"]),
        )
        rounds += 1
        if saved is not None:
            saved.save(digest, rounds, refinement.state())
        on_round(rounds, total)
    done = {"documents": documents.total, "passes": passes, "sweeps": 0}
    done |= {"steps": refinement.steps, "batch_documents": plan.settings.batch_documents}
    return refinement, {**done, "lanes": plan.parts, "rounds": total}


KIND, FORMAT_VERSION, NAME = "refinement-round", 2, "refinement.state"


class SavedRounds:
    """The newest round, in a folder or at a URL that fsspec can write: as secret as documents."""

    def __init__(self, folder: str) -> None:
        self._system, self._folder = fsspec.core.url_to_fs(folder)
        self._path = f"{str(self._folder).rstrip('/')}/{NAME}"

    def load(self, digest: str) -> tuple[int, State] | None:
        """Return how many rounds were made, and the state then; None if there is none.

        Raises `InvalidSettingError` if it is of another start, and `ModelFileError` if the file is
        damaged.
        """
        if not self._system.exists(self._path):
            return None
        data = self._system.cat_file(self._path)
        found = parse_arrays(data, KIND, FORMAT_VERSION, self._path)
        check(found.metadata["digest"] == digest, "state", folder=self._folder)
        return int(found.metadata["rounds"]), (found.arrays, found.metadata["values"])

    def save(self, digest: str, rounds: int, state: State) -> None:
        """Take the place of what was saved, in one step."""
        arrays, values = state
        about: dict[str, Any] = {"digest": digest, "rounds": rounds, "values": values}
        self._system.makedirs(self._folder, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # Elsewhere an object takes its name when it is whole.
            local = "file" in self._system.protocol
            path = Path(self._path) if local else Path(folder, NAME)
            write_arrays(path, KIND, FORMAT_VERSION, arrays, about, mode=0o600)
            if not local:
                self._system.put_file(str(path), self._path)


def digest_of(start: TopicModel, plan: LocalSchedule, documents: int) -> str:
    """Return what tells a refinement from others: its start, its steps, and how much it reads."""
    digest = blake2b(repr((astuple(plan), documents)).encode(), digest_size=16)
    for array in (start.components, start.alpha, start.background):
        digest.update(array.tobytes())
    return digest.hexdigest()
