"""Users as the privacy unit: at most g documents of one user are counted in a stage.

1. Whether a document is accepted depends on the documents *of its own user* that came before it
   in the stage, and on nothing else: there is no limit shared by users, no table whose slots they
   compete for. So all other users have the same documents accepted in both of two neighbours.
2. Of the one user at most g documents are accepted, so its part of the sum has norm at most g C,
   by the triangle inequality; it is 0 where its documents are blanks. Attained by g equal
   documents of norm C, and under replace-one by opposite ones in place of them.

Public: g. A user without a name is nobody in particular: such documents are refused, each for
itself, since those of two persons could not be told apart. What stages cost a user adds up.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.checks import InvalidDocumentsError, at_least, between, require

#: Bytes of a key, and of a digest: n users of a stage share one with probability below n^2 / 2^129.
_KEY_BYTES, _DIGEST_BYTES = 32, 16


class UserBound:
    """The first g documents of each user of a stage.

    Users are remembered as keyed digests, with a new key for each stage: names are not kept. Who
    holds the state holds the key, so it is as secret as the documents. Two users whose digests
    collide would share one allowance: less than 2^-89 of delta for a stage of a million users.
    """

    __slots__ = ("_accepted", "_key", "documents_per_user")

    def __init__(self, documents_per_user: int) -> None:
        at_least(1, documents_per_user=documents_per_user)
        between(1, 2**31, documents_per_user=documents_per_user)
        self.documents_per_user = int(documents_per_user)
        self.restart()

    def restart(self) -> None:
        """Begin a new stage: forget all users, and take a new key."""
        self._key = os.urandom(_KEY_BYTES)
        self._accepted: dict[bytes, int] = {}

    def accept(self, users: Sequence[str | bytes | None]) -> NDArray[np.bool_]:
        """Return which of the next documents of the stage may enter its sums, in their order.

        True for the first g documents of each user, however the stage is cut into calls. Text is
        the same user as its UTF-8 bytes; nothing else is made equal. None and empty names are
        refused. Anything else raises before it is counted: convert names where the stream is read.
        """
        require(
            not isinstance(users, str | bytes),
            "users must be a sequence of names",
            users=type(users).__name__,
            remedy="put a single name into a list",
            error=InvalidDocumentsError,
        )
        digests = [self._digest(user) for user in users]
        accepted = np.zeros(len(digests), dtype=np.bool_)
        for slot, digest in enumerate(digests):
            if digest is None:
                continue
            count = self._accepted.get(digest, 0)
            if count < self.documents_per_user:
                self._accepted[digest] = count + 1
                accepted[slot] = True
        return accepted

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all that `from_state` needs: raw data, to be kept secret.

        ``digests`` has shape (n_users, 16), sorted so that it does not tell who came first.
        """
        digests = sorted(self._accepted)
        return {
            "documents_per_user": np.array(self.documents_per_user, dtype=np.int64),
            "key": np.frombuffer(self._key, dtype=np.uint8).copy(),
            "digests": np.frombuffer(b"".join(digests), dtype=np.uint8)
            .reshape(-1, _DIGEST_BYTES)
            .copy(),
            "accepted": np.array([self._accepted[digest] for digest in digests], dtype=np.int64),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Continue exactly where `state` was taken."""
        rule = "a saved state is not what state() returned, or not whole or in its ranges"
        names, remedy = {"documents_per_user", "key", "digests", "accepted"}, "restore it whole"
        require(set(state) == names, rule, arrays=sorted(state), remedy=remedy)
        accepted, digests = state["accepted"].tolist(), [row.tobytes() for row in state["digests"]]
        restored = cls(int(state["documents_per_user"]))
        restored._key = state["key"].tobytes()
        fits = len(restored._key) == _KEY_BYTES and digests == sorted(set(digests))
        fits &= len(digests) == len(accepted) and {*map(len, digests)} <= {_DIGEST_BYTES}
        fits &= all(1 <= n <= restored.documents_per_user for n in accepted)
        require(fits, rule, users=len(digests), remedy=remedy)
        restored._accepted = dict(zip(digests, accepted, strict=True))
        return restored

    def _digest(self, user: str | bytes | None) -> bytes | None:
        if user is None or user == "" or user == b"":
            return None
        if isinstance(user, str):
            # Half a surrogate pair is no text, but it is still one name and no other.
            user = user.encode("utf-8", "surrogatepass")
        require(
            isinstance(user, bytes),
            "a user is no str, bytes or None",
            type=type(user).__name__,
            remedy="convert names where the stream is read",
            error=InvalidDocumentsError,
        )
        return hashlib.blake2b(user, digest_size=_DIGEST_BYTES, key=self._key).digest()
