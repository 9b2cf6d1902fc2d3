"""A private run of ``streamlda fit``: each snapshot is paid for, and written as it comes.

Nothing that is exact about the documents is printed: places, snapshots and the budget only. The
line of progress shows places and bytes; standard error is for the owner of the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.running import Progress, StopSignals
from streamlda.cli.sources import warn

if TYPE_CHECKING:
    from streamlda.privacy.ledger import Ledger
    from streamlda.privacy.selection import WordSelection
    from streamlda.private.engine import PrivateSnapshot
    from streamlda.private.learner import PrivateLearner
    from streamlda.private.release_manager import ReleaseManager
    from streamlda.private.settings import PrivateSettings
    from streamlda.stream.ingest import Counts, Ingested
    from streamlda.stream.source import Source
    from streamlda.stream.vocabulary_choice import PrivateVocabularySelection
    from streamlda.text.analysis import TextAnalyzer
    from streamlda.text.vocabulary import Vocabulary


def stream_name(sources: Sequence[str]) -> str:
    """Return the name of a stream in the ledger: absolute paths, URLs as they are, or stdin."""
    if list(sources) == ["-"]:
        return "stdin"
    return " ".join(name if "://" in name else str(Path(name).resolve()) for name in sources)


class PlacesProgress(Progress):
    """A line of progress that counts places, never documents."""

    def show(self, counts: Counts) -> None:
        """Show the places read, several times a second at most."""
        if not self._bar.disable:
            self._bar.set_description_str(f"{counts.places:,} places", refresh=False)
            self._bar.update(self._source.progress().done - self._bar.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRun:
    """A private run of ``streamlda fit``.

    Parameters
    ----------
    sources : sequence of str
        As given on the command line.
    open_source : callable
        Opens them; called once the budget is known to suffice.
    output : str
        Model file; replaced by each newer snapshot.
    max_documents : int or None
        Places after which to stop.
    quiet : bool
    options : dict
        All others of the command.
    words : Vocabulary or None
        None to choose them privately.
    analyzer : TextAnalyzer
    """

    sources: Sequence[str]
    open_source: Callable[[], Source]
    output: str
    max_documents: int | None
    quiet: bool
    options: dict[str, Any]
    words: Vocabulary | None
    analyzer: TextAnalyzer

    def learn(self, signals: StopSignals) -> None:
        """Read, pay, and write each snapshot as it comes.

        Raises
        ------
        BudgetExceededError, LedgerError
            Before any document is read if the ledger does not allow the first window.
        InsufficientDataError
            If no snapshot could be made; it tells places, not documents.
        """
        from streamlda.errors import InsufficientDataError
        from streamlda.private.budget import check_first_price
        from streamlda.private.learner import CLOCKED_ROWS
        from streamlda.private.release_manager import ReleaseManager
        from streamlda.stream.ingest import Ingestion

        settings, selection = self._settings()
        with ExitStack() as opened:
            ledger = self._open_ledger(opened, settings, selection)
            stream = self.options["stream"] or stream_name(self.sources)
            check_first_price(ledger, stream, settings, *self._words_event(selection))
            releaser = ReleaseManager(ledger=ledger, stream=stream)
            source = self.open_source()
            opened.callback(source.close)
            progress = opened.enter_context(PlacesProgress(source, self.quiet))
            learners: list[PrivateLearner] = []

            def make_learner(words: Vocabulary) -> PrivateLearner:
                learners.append(self._learner(words, settings, releaser, ingestion.stop))
                return learners[-1]

            def after_poll(counts: Counts) -> None:
                progress.show(counts)
                for learner in learners:
                    learner.tick()

            ingestion: Ingestion[PrivateLearner] = Ingestion(
                source,
                self._words_to_select(selection, releaser) if selection else self._given(),
                make_learner,
                max_documents=self.max_documents,
                on_progress=after_poll,
                blanks=True,
                block_documents=CLOCKED_ROWS if self.options["snapshot_seconds"] else None,
            )
            signals.call(ingestion.stop)
            ingested: Ingested[PrivateLearner] | None = None
            try:
                ingested = ingestion.run()
                # Where a signal or a failure ends the stream may depend on what documents say.
                if not (signals.received or ingested.failure):
                    ingested.engine.finish()
                newest = ingested.engine.snapshot(ingested.vocabulary)
            except InsufficientDataError as error:
                if ingested is not None and ingested.failure is not None:
                    warn(f"no snapshot was made: {error}")
                    raise ingested.failure from error
                if signals.received:
                    message = f"streamlda: error: stopped before a snapshot was made: {error}"
                    click.echo(message, err=True)
                    click.get_current_context().exit(128 + signals.received)
                raise
        for message in newest.diagnostics.get("warnings", []):
            warn(message)
        if not self.quiet:
            self._summarize(ingested, bool(signals.received))
        if ingested.failure is not None:
            raise ingested.failure
        if signals.received:
            click.get_current_context().exit(128 + signals.received)

    def _settings(self) -> tuple[PrivateSettings, WordSelection | None]:
        """Return the settings, for the most words there can be, and the choice of words."""
        from streamlda.errors import InvalidSettingError
        from streamlda.private.budget import words_and_delta
        from streamlda.private.settings import PrivateSettings

        options = self.options
        relation, delta, selection = options["relation"] or "add-remove", options["delta"], None
        n_features = options["private_vocabulary"]
        if self.words is not None:
            n_features = self.words.n_features
        if options["topics"] > n_features:
            raise InvalidSettingError(
                "there must be at least as many words as topics, got "
                f"topics={options['topics']} words={n_features}; "
                "ask for fewer topics or more words"
            )
        if self.words is None:
            selection, delta = words_and_delta(options["epsilon"], delta, relation)
        settings = PrivateSettings(
            n_components=options["topics"],
            n_features=n_features,
            epsilon=options["epsilon"],
            delta=delta,
            documents_per_snapshot=options["snapshot_every"],
            alpha_0=options["alpha0"],
            neighboring_relation=relation,
            privacy_unit=options["unit"] or "document",
            documents_per_user=options["documents_per_user"],
            snapshots=options["snapshots"],
            mode=options["mode"] or "window",
            clipping=options["clipping"] or "quantile",
            seed=options["seed"],
            solver=options["solver"],
            n_iterations=options["iterations"],
            refinement_rounds=options["refinement_rounds"],
            **({} if options["restarts"] is None else {"n_restarts": options["restarts"]}),
        )
        return settings, selection

    def _open_ledger(
        self, opened: ExitStack, settings: PrivateSettings, selection: WordSelection | None
    ) -> Ledger:
        """Open the ledger or make it, and end a release that a crash cut short."""
        from streamlda.privacy.ledger import Ledger
        from streamlda.private.budget import run_terms

        terms = run_terms(settings, words=selection is not None)
        path = self.options["ledger"]
        ledger = opened.enter_context(Ledger.open(path, terms, create=True))
        ended = ledger.recover()
        if ended is not None:
            warn(f"release {ended.intent.number} was cut short before: {ended.outcome}, and paid")
        return ledger

    def _words_event(self, selection: WordSelection | None) -> tuple[int, Any]:
        """Return the places and the price of the choice of words; 0 places for none."""
        if selection is None:
            return 0, None
        return self.options["vocabulary_documents"], selection.event

    def _given(self) -> Vocabulary:
        assert self.words is not None
        return self.words

    def _words_to_select(
        self, selection: WordSelection, releaser: ReleaseManager
    ) -> PrivateVocabularySelection:
        from streamlda.stream.vocabulary_choice import PrivateVocabularySelection

        return PrivateVocabularySelection(
            selection,
            size=self.options["private_vocabulary"],
            slots=self.options["vocabulary_documents"],
            analyzer=self.analyzer,
            release=releaser.release,
        )

    def _learner(
        self,
        words: Vocabulary,
        settings: PrivateSettings,
        releaser: ReleaseManager,
        stop: Callable[[], None],
    ) -> PrivateLearner:
        """Return the learner for the words, when they are known."""
        from streamlda.private.budget import STATEMENTS, for_fewer_words
        from streamlda.private.learner import PrivateLearner

        first_slot = self.options["vocabulary_documents"] if self.words is None else 0
        settings = for_fewer_words(settings, words.n_features)

        def publish(snapshot: PrivateSnapshot) -> None:
            model = learner.model_of(snapshot, words, {"snapshot": snapshot.number})
            if self.options["keep_snapshots"]:
                model.save(f"{self.output}.{snapshot.number:06d}")
            model.save(self.output)
            if learner.finished:
                stop()

        learner = PrivateLearner(
            settings,
            releaser,
            vocabulary=STATEMENTS[words.kind],
            delta_of_words=self.options["delta"] - settings.delta,
            first_slot=first_slot,
            on_snapshot=publish,
            seconds_per_snapshot=self.options["snapshot_seconds"],
        )
        return learner

    def _summarize(self, ingested: Ingested[PrivateLearner], stopped: bool) -> None:
        from streamlda.private.budget import STATEMENTS

        learner, words = ingested.engine, ingested.vocabulary
        newest = learner.engine.snapshot
        assert newest is not None
        options, settings = self.options, learner.settings
        n_topics = len(newest.topics.components)
        say = [
            f"{n_topics} topics over {words.n_features:,} words ({STATEMENTS[words.kind]})",
            f"snapshot {newest.number:,}, of the places {newest.stages[0].first:,} to "
            f"{newest.stages[-1].last:,}; {ingested.counts.places:,} places read in "
            f"{ingested.seconds:.1f} s",
            f"private: epsilon {options['epsilon']:g}, delta {options['delta']:g} for each "
            f"{settings.privacy_unit} ({settings.neighboring_relation}); "
            f"spent: streamlda budget {options['ledger']}",
            "numbers of documents, rejects and tokens are private and not shown",
        ]
        if stopped:
            say.append("stopped before the end of the source")
        say.append(f"model: {self.output}")
        click.echo("\n".join(say), err=True)
