"""Ids of the topics of a stream, which stay theirs while others come and go.

Topics that a new fit shares with those before keep their rows and ids. Others get new ids, or the
old one where they are a topic that has retired (`streamlda.model.matching`).
"""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.model import MAX_DISTANCE
from streamlda.model.diagnostics import hellinger
from streamlda.model.topic_model import TopicModel
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Tree


@dataclass(slots=True)
class Lineage:
    """Ids of the topics, and topics that retired: K at most, 4 V K bytes."""

    #: Id of the topic in each row.
    ids: list[int]
    #: Words of the topics that retired, (n, V), the oldest first.
    topics: NDArray[np.float32]
    #: Their ids, with the documents seen by then.
    retired: list[tuple[int, int]] = field(default_factory=list)
    #: Ids given so far.
    named: int = 0

    @classmethod
    def begin(cls, n_components: int, n_features: int) -> Self:
        """Return ids that are the rows."""
        none = np.zeros((0, n_features), dtype=np.float32)
        return cls([*range(n_components)], none, named=n_components)

    def _new(self) -> int:
        self.named += 1
        return self.named - 1

    def follow(
        self, champion: TopicModel, challenger: TopicModel, documents_seen: int
    ) -> list[int]:
        """Return the topic of a challenger for each row; ids follow it."""
        K, seeded = len(self.ids), len(challenger.seeds)
        apart = hellinger(champion.components, challenger.components)
        # Seeded topics are in the first rows of both.
        apart[range(seeded), range(seeded)] = -float(K)
        rows, columns = _match_rows(apart)
        order: list[int] = columns[np.argsort(rows)].tolist()
        gone = rows[apart[rows, columns] > MAX_DISTANCE].tolist()
        older = len(self.retired)
        self.retired += [(self.ids[row], documents_seen) for row in gone]
        known = np.vstack([self.topics, champion.components[gone].astype(np.float32)])
        back: dict[int, int] = {}
        if older and gone:
            new = challenger.components[[order[row] for row in gone]]
            apart = hellinger(new, self.topics.astype(np.float64))
            pairs = zip(*_match_rows(apart), strict=True)
            back = {gone[i]: int(j) for i, j in pairs if apart[i, j] <= MAX_DISTANCE}
        for row in gone:
            self.ids[row] = self.retired[back[row]][0] if row in back else self._new()
        left = [j for j in range(len(self.retired)) if j not in back.values()][-K:]
        self.retired, self.topics = [self.retired[j] for j in left], known[left]
        return order

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left."""
        words = change.rows(np.ascontiguousarray(self.topics.T, dtype=np.float64))
        self.topics = np.ascontiguousarray(words.T, dtype=np.float32)

    @property
    def diagnostics(self) -> list[dict[str, int]]:
        """Topics that retired, for the diagnostics of a model."""
        return [{"id": each, "documents_seen": seen} for each, seen in self.retired]

    def state(self) -> Tree:
        """Return all of it."""
        own = {"ids": [*self.ids], "topics": self.topics.copy()}
        return own | {"retired": [*self.retired], "named": self.named}

    @classmethod
    def from_state(cls, own: Tree) -> Self:
        """Return what `state` was called on."""
        retired = [(each, seen) for each, seen in own["retired"]]
        return cls([*own["ids"]], own["topics"].copy(), retired, own["named"])


def _match_rows(apart: NDArray[np.float64]) -> tuple[Any, Any]:
    """Return rows and columns, one to one, that are least apart; far is far."""
    return scipy.optimize.linear_sum_assignment(np.minimum(apart, MAX_DISTANCE))
