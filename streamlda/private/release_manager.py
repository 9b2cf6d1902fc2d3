"""Releases paid for, drawn and stored: the ledger's three steps around the noise of a stage.

The artefact of a release is a file of its noisy sums (kind ``streamlda-release``, version 1), and
of what a model of them needs besides, which is public (settings, words, public topics), in a folder
beside the ledger: everything that ever left the raw sums is in these files, and topics can
be made from them again, with another alpha_0 say, at no further cost. Without a ledger nothing is
stored: the guarantee holds for the run, and nothing remembers it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streamlda.container import ArraysFile, read_arrays, temporary_name, write_arrays
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.privacy.events import Event
from streamlda.privacy.ledger import Evidence, Ledger, Provenance, Release
from streamlda.privacy.ledger.ledger import SUFFIX, UNPUBLISHED, unpublished_path
from streamlda.private.budget import WordsAndDelta, ledger_terms
from streamlda.private.settings import PrivateSettings

RELEASE_FORMAT, RELEASE_VERSION = "streamlda-release", 2


def config_hash(settings: PrivateSettings, vocabulary: str) -> str:
    """Return a digest of all settings of a release, without documents, words and starts."""
    values = {name: value for name, value in asdict(settings).items() if name != "seed"}
    values["vocabulary"] = vocabulary
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()


def open_ledger(
    path: str | os.PathLike[str],
    settings: PrivateSettings,
    *,
    words: WordsAndDelta | None = None,
    on_recovery: Callable[[str], None] = lambda outcome: None,
    evidence: Sequence[Evidence] = (),
) -> Ledger:
    """Open the ledger of a run, with a choice of `words` or without, or make it.

    A release that a crash cut short is ended first, and `on_recovery` gets what became of it. Noisy
    sums that were not on record then are deleted.
    """
    terms = ledger_terms(settings, words)
    ledger = Ledger.open(path, terms, create=True, evidence=evidence)
    try:
        ended = ledger.recover()
        if ended is not None:
            on_recovery(f"release {ended.number}: {ended.state}")
        # Of a kill while noisy sums were written, or before they had their name.
        for pattern in (f"*{UNPUBLISHED}", temporary_name("*")):
            for left in ledger.folder.glob(pattern):
                left.unlink()
    except BaseException:
        ledger.close()
        raise
    return ledger


class ReleaseManager:
    """Pays for releases and draws their noise: `SecureNoise` by default.

    `provenance` says which documents a release takes: whoever feeds the learner gives it every
    record; without it they are the slots of `stream`. `run` is the random name of the run, which is
    public.
    """

    def __init__(
        self,
        noise: Noise | None = None,
        ledger: Ledger | None = None,
        stream: str = "stream",
        *,
        provenance: Provenance | None = None,
        run: str | None = None,
        resumes: bool = False,
    ) -> None:
        self.noise = SecureNoise() if noise is None else noise
        self.ledger: Ledger | None = None
        self.stream, self.run = stream, run
        self.provenance = provenance
        #: Whether the run is under way, which may start when the budget is used up.
        self._resumes = resumes
        if ledger is not None:
            self.attach(ledger)

    def attach(self, ledger: Ledger) -> None:
        """Pay releases by a ledger that is open for writing."""
        self.ledger = ledger
        slots = Provenance(ledger.key, self.stream, by_slots=True)
        self.provenance = self.provenance or slots

    def check(self, event: Event) -> None:
        """Raise `BudgetExceededError` if a release on new documents would; spend nothing."""
        if self.ledger is not None and not self._resumes:
            self.ledger.check(event)

    def release(
        self,
        name: str,
        first: int,
        last: int,
        event: Event,
        draw: Callable[[Noise], dict[str, Any]],
        about: Mapping[str, Any],
        config: str = "",
        beside: Mapping[str, NDArray[Any]] | None = None,
    ) -> dict[str, Any]:
        """Pay for a release of the slots from `first` to before `last`, draw and store it.

        `draw` is called once, after the price is on the disk. `about` and the arrays `beside` are
        stored with what it returns, and must be public. After an error the price may be spent.
        """
        if self.ledger is None:
            return draw(self.noise)
        assert self.provenance is not None
        cohort = self.provenance.cohort(first, last, self.run)
        # Nothing is paid or drawn for a place where a release lies that this ledger does not know.
        final = _path(self.ledger, self.ledger.generation + 1, name)
        self.ledger.check_target(final)
        intent = self.ledger.begin(cohort, event, config_hash=config, description=name)
        self.provenance.clear()
        arrays = draw(self.noise)
        final.parent.mkdir(mode=0o700, exist_ok=True)
        stored = {"stage": name, "first": first, "last": last - 1, **about}
        stored["secure"] = self.noise.secure
        every = {**arrays, **(beside or {})}
        write_arrays(unpublished_path(final), RELEASE_FORMAT, RELEASE_VERSION, every, stored)
        self.ledger.publish(intent, final)
        return arrays

    def is_of_run(self, intent: Release) -> bool:
        """Tell whether a release is one of this run."""
        cohort = intent.cohort
        if cohort.run is not None:
            return cohort.run == self.run
        # A run without a name is known by that of its stream.
        return cohort.documents[0].stream == self.stream

    def read_stored(self, intent: Release) -> ArraysFile | None:
        """Return the result of a release, or None if it was lost."""
        assert self.ledger is not None
        path = _path(self.ledger, intent.number, intent.description)
        if not path.exists():
            return None
        self.ledger.check_target(path)
        return read_arrays(path, RELEASE_FORMAT, RELEASE_VERSION)


def _path(ledger: Ledger, number: int, name: str) -> Path:
    return ledger.folder / f"{number:06d}-{name.replace(' ', '-')}{SUFFIX}"
