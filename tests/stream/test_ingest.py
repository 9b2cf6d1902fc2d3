"""The driver between a source and the engine."""

from dataclasses import replace

import click
import numpy as np
import pytest
from click.testing import CliRunner
from streamlda.stream.ingest import Ingestion

from streamlda.cli.sources import open_sources, source_options, user_option
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import (
    InsufficientDataError,
    InvalidSettingError,
    SourceError,
    VocabularyError,
)
from streamlda.simulate import PlantedLDA, SimulatedSource
from streamlda.stream import ingest
from streamlda.stream.source import Progress, RecordBatch, RecordLocation, Reject
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary

WORDS = ["apple", "bread", "cheese", "dates"]


class Scripted:
    """A source that brings the polls it is given, whatever is asked for, and then ends."""

    def __init__(self, *polls):
        self.polls = list(polls)
        self.asked = []

    def poll(self, max_records, timeout_seconds=1.0):
        self.asked.append(max_records)
        poll = self.polls.pop(0)
        if isinstance(poll, Exception):
            raise poll
        return replace(poll, exhausted=not self.polls)

    def progress(self):
        return Progress(0, None, "documents")


def given_engine(vocabulary, k=2):
    return Engine(EngineSettings(n_components=k, n_features=vocabulary.n_features, refine=False))


def corpus(n=600, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 6, p=rng.dirichlet([0.4] * 4))) for _ in range(n)]


def state_bytes(engine):
    arrays, values = engine.state()
    return {name: array.tobytes() for name, array in arrays.items()}, values


def test_equal_streams_give_equal_engines_however_they_arrive(monkeypatch):
    monkeypatch.setattr(ingest, "BLOCK_DOCUMENTS", 100)
    texts = corpus()
    large, small = (
        Scripted(*(RecordBatch(texts[i : i + n]) for i in range(0, len(texts), n)))
        for n in (100, 7)
    )
    results = [
        Ingestion(
            source, VocabularyLearner(documents=250, max_document_frequency=1.0), given_engine
        ).run()
        for source in (large, small)
    ]
    assert results[0].vocabulary == results[1].vocabulary
    assert results[0].vocabulary_documents == 250
    assert state_bytes(results[0].engine) == state_bytes(results[1].engine)
    assert results[0].engine.documents_seen == len(texts)
    assert results[0].vocabulary.words == tuple(WORDS)


def test_equals_the_engine_fed_by_hand():
    texts, vocabulary = corpus(), Vocabulary.given(WORDS)
    found = Ingestion(Scripted(RecordBatch(texts)), vocabulary, given_engine).run()
    by_hand = given_engine(vocabulary)
    by_hand.add(vocabulary.encode(texts).batch)
    assert state_bytes(found.engine) == state_bytes(by_hand)
    assert found.vocabulary_documents == 0
    assert not found.stopped


def test_words_are_learned_from_the_first_documents_only():
    texts = ["apple bread cheese", "bread cheese apple"] * 5 + ["dates dates dates apple"] * 20
    source = Scripted(RecordBatch(texts))
    to_learn = VocabularyLearner(documents=10, max_document_frequency=1.0)
    found = Ingestion(source, to_learn, given_engine).run()
    assert found.vocabulary.words == ("apple", "bread", "cheese")
    assert found.vocabulary_documents == 10
    assert found.counts.unseen_tokens == 60
    assert found.counts.unseen_share == 60 / (30 + 80)


def test_words_are_learned_from_a_bounded_number_of_characters(monkeypatch):
    monkeypatch.setattr(ingest, "VOCABULARY_CHARACTERS", 1000)
    texts = ["apple bread cheese " * 10] * 20
    to_learn = VocabularyLearner(documents=10**6, max_document_frequency=1.0)
    found = Ingestion(Scripted(RecordBatch(texts)), to_learn, given_engine).run()
    assert found.vocabulary_documents == 6


@pytest.mark.parametrize(("documents", "least"), [(3, 1), (399, 1), (600, 3), (5000, 5)])
def test_least_document_frequency_grows_with_the_documents(documents, least):
    rare = [f"apple bread {word}" for word in ("fig", "grape", "honey", "kiwi", "lemon")]
    texts = []
    for i, text in enumerate(rare[:least]):
        texts += [text] * (i + 1)
    texts += ["cheese"] * (documents - len(texts))
    words = VocabularyLearner(max_document_frequency=1.0).learn(texts).words
    kept = [text.split()[2] in words for text in rare[:least]]
    assert kept == [i + 1 >= least for i in range(least)]


def test_counts_and_reports_what_was_passed_over():
    rejects = [Reject("a.txt", 2, "not-utf8"), Reject("a.txt", 5, "not-utf8")]
    texts = ["apple bread dates", None, "apple unknown", "bread bread cheese", None]
    locations = [RecordLocation("a.txt", 1 + i) for i in range(5)]
    source = Scripted(
        RecordBatch(texts, rejects, False, locations),
        RecordBatch([None], [Reject("b.txt", 1, "too-long")]),
        RecordBatch(["", "apple apple apple"]),
    )
    seen, shown = [], []
    ingestion = Ingestion(
        source,
        Vocabulary.given(WORDS),
        given_engine,
        on_reject=seen.append,
        on_progress=lambda counts: shown.append(counts.documents),
    )
    counts = ingestion.run().counts
    assert (counts.documents, counts.short, counts.tokens, counts.unseen_tokens) == (5, 2, 11, 1)
    assert counts.rejects == {"not-utf8": 2, "too-long": 1}
    assert seen == [
        *rejects,
        Reject("b.txt", 1, "too-long"),
        Reject("a.txt", 3, "short"),
        Reject("stream", 7, "short"),
    ]
    assert shown == [3, 3, 5]


def test_max_documents_is_kept_to():
    source = SimulatedSource(PlantedLDA(2, 20, seed=0))
    vocabulary = Vocabulary.given(PlantedLDA(2, 20, seed=0).words)
    found = Ingestion(source, Vocabulary.hashed(5), given_engine, max_documents=1)
    with pytest.raises(InsufficientDataError, match="documents=1 short=1"):
        found.run()
    by_pattern = Vocabulary.given(
        vocabulary.words, vocabulary.analyzer.__class__(token_pattern=r"\w+")
    )
    found = Ingestion(source, by_pattern, given_engine, max_documents=5000).run()
    assert found.counts.documents == found.engine.documents_seen == 5000
    assert source.position() == {"document": 5001}
    assert not found.stopped


@pytest.mark.parametrize("learned", [True, False])
def test_stop_learns_from_all_that_was_read(learned):
    texts = corpus(30)
    source = Scripted(RecordBatch(texts[:10]), RecordBatch(texts[10:20]), RecordBatch(texts[20:]))
    vocabulary = (
        VocabularyLearner(max_document_frequency=1.0) if learned else Vocabulary.given(WORDS)
    )

    def stop_at_twenty(counts):
        if counts.documents == 20:
            ingestion.stop()

    ingestion = Ingestion(source, vocabulary, given_engine, on_progress=stop_at_twenty)
    found = ingestion.run()
    assert found.stopped
    assert found.engine.documents_seen == 20
    assert len(source.polls) == 1


def test_nothing_is_read_after_a_stop_before_the_start():
    source = Scripted(RecordBatch(["apple bread dates"]))
    ingestion = Ingestion(source, Vocabulary.given(WORDS), given_engine)
    ingestion.stop()
    with pytest.raises(InsufficientDataError, match="documents=0"):
        ingestion.run()
    assert source.asked == []


@pytest.mark.parametrize(
    ("polls", "wanted"),
    [
        ([RecordBatch()], "no document came: got documents=0 short=0 rejects=0;"),
        (
            [RecordBatch([None], [Reject("a", 1, r)]) for r in ("not-json", "missing-field")],
            "documents=0 short=0 rejects=2 missing-field=1 not-json=1;",
        ),
        ([RecordBatch(["apple", "bread dates"])], "documents=2 short=2 rejects=0;"),
    ],
)
def test_without_documents_the_error_counts_what_came(polls, wanted):
    with pytest.raises(InsufficientDataError) as caught:
        Ingestion(Scripted(*polls), Vocabulary.given(WORDS), given_engine).run()
    assert wanted in str(caught.value)
    assert "apple" not in str(caught.value)


def test_documents_without_words_are_no_vocabulary():
    with pytest.raises(VocabularyError, match="documents=3"):
        Ingestion(Scripted(RecordBatch(["1 2 3"] * 3)), VocabularyLearner(), given_engine).run()


@pytest.mark.parametrize("learned", [True, False])
def test_what_was_read_before_a_source_fails_is_learned_from(learned):
    vocabulary = (
        VocabularyLearner(max_document_frequency=1.0) if learned else Vocabulary.given(WORDS)
    )
    source = Scripted(RecordBatch(corpus(40)), SourceError("gone"), RecordBatch(corpus(40)))
    found = Ingestion(source, vocabulary, given_engine).run()
    assert str(found.failure) == "gone"
    assert found.engine.documents_seen == 40
    assert not found.stopped
    assert len(source.polls) == 1


def test_a_source_that_fails_at_once_and_a_failing_engine_raise():
    vocabulary = Vocabulary.given(WORDS)
    for polls in ([SourceError("gone")], [RecordBatch(["apple"]), SourceError("gone")]):
        with pytest.raises(SourceError, match="gone"):
            Ingestion(Scripted(*polls), vocabulary, given_engine).run()

    def other_size(vocabulary):
        return Engine(EngineSettings(n_components=2, n_features=3))

    with pytest.raises(ValueError, match="n_features=4 expected=3"):
        Ingestion(Scripted(RecordBatch(["apple bread dates"])), vocabulary, other_size).run()


def test_settings_out_of_range_are_refused():
    with pytest.raises(InvalidSettingError, match="max_documents=0"):
        Ingestion(Scripted(), Vocabulary.given(WORDS), given_engine, max_documents=0)
    with pytest.raises(InvalidSettingError, match="vocabulary_documents=0"):
        VocabularyLearner(documents=0)


class Noting:
    """A learner that notes the rows it is given and their users, None where no users came."""

    documents_seen = 0

    def __init__(self, vocabulary):
        self.lengths, self.users = [], []

    def add(self, batch, users=None):
        self.lengths += batch.lengths.tolist()
        self.users.append(users)


def test_blanks_stand_where_records_without_a_text_stood():
    rejects = [Reject("a.txt", 2, "not-utf8"), Reject("a.txt", 6, "not-json")]
    source = Scripted(
        RecordBatch([None]),
        RecordBatch([None, "apple bread dates", None, "apple", None, None], rejects),
        RecordBatch([None, "bread " * 4], [Reject("b.txt", 1, "too-long")]),
    )
    seen = []
    found = Ingestion(
        source, Vocabulary.given(WORDS), Noting, blanks=True, on_reject=seen.append
    ).run()
    assert found.engine.lengths == [0, 0, 3, 0, 1, 0, 0, 0, 4]
    assert found.engine.users == [None]
    counts = found.counts
    assert (counts.documents, counts.short, counts.blanks, counts.places) == (3, 1, 6, 9)
    assert counts.rejects == {"not-utf8": 1, "not-json": 1, "too-long": 1}
    # Each reject once, and of the rows only the document that is short.
    assert seen == [*rejects, Reject("b.txt", 1, "too-long"), Reject("stream", 5, "short")]


def test_words_are_learned_from_places_and_the_rows_stay_in_order():
    texts = ["apple bread cheese"] * 6
    polls = [RecordBatch([None, *texts[:3], None]), RecordBatch([texts[3], None, *texts[4:]])]
    to_learn = VocabularyLearner(documents=4, max_document_frequency=1.0)
    found = Ingestion(Scripted(*polls), to_learn, Noting, blanks=True).run()
    assert found.vocabulary_documents == 4
    assert found.engine.lengths == [0, 3, 3, 3, 0, 3, 0, 3, 3]


def test_users_come_with_the_rows_once_the_source_says_whose_they_are(monkeypatch):
    monkeypatch.setattr(ingest, "BLOCK_DOCUMENTS", 2)
    source = Scripted(
        RecordBatch([None, None]),
        RecordBatch(["apple bread dates", None], users=["ann", None]),
        RecordBatch(["apple bread dates"] * 2, users=[None, "7"]),
        RecordBatch(["bread", None], users=[None, None]),
    )
    found = Ingestion(source, Vocabulary.given(WORDS), Noting, blanks=True).run()
    assert found.failure is None
    assert found.engine.users == [None, ["ann", None], [None, "7"], [None, None]]


@pytest.mark.parametrize(("rows", "sizes"), [(None, [2, 3, 2]), (2, [2, 2, 2, 1])])
def test_blocks_of_rows_end_where_they_do_whatever_documents_say(monkeypatch, rows, sizes):
    """A clock that is looked at between blocks must not see how long documents are."""
    monkeypatch.setattr(ingest, "BLOCK_CHARACTERS", 100)
    monkeypatch.setattr(ingest, "BLOCK_DOCUMENTS", 3)
    long, short = "apple " * 20, "apple"
    blocks = []

    class Sizes(Noting):
        def add(self, batch, users=None):
            blocks.append(batch.n_documents)

    polls = RecordBatch([short, long, short]), RecordBatch([short] * 3), RecordBatch([short])
    Ingestion(
        Scripted(*polls), Vocabulary.given(WORDS), Sizes, blanks=True, block_documents=rows
    ).run()
    assert blocks == sizes


def test_an_engine_for_a_batch_alone_is_refused_users():
    source = Scripted(RecordBatch(["apple bread dates"], users=["ann"]))
    with pytest.raises(TypeError) as caught:
        Ingestion(source, Vocabulary.given(WORDS), given_engine).run()
    assert "ann" not in str(caught.value)


@pytest.mark.parametrize("blanks", [False, True])
def test_a_batch_that_breaks_the_rules_ends_a_run(blanks):
    words, source = Vocabulary.given(WORDS), Scripted(RecordBatch(["apple"] * 4))
    with pytest.raises(SourceError, match="max_records=3"):
        Ingestion(source, words, Noting, blanks=blanks, max_documents=3).run()


def test_with_blanks_no_error_tells_what_documents_say():
    polls = [RecordBatch([None, "apple"]), SourceError("gone")]
    found = Ingestion(Scripted(*polls), Vocabulary.given(WORDS), Noting, blanks=True).run()
    assert found.engine.lengths == [0, 1]
    assert str(found.failure) == "gone"
    with pytest.raises(InsufficientDataError, match="no document came"):
        Ingestion(Scripted(RecordBatch()), Vocabulary.given(WORDS), Noting, blanks=True).run()
    with pytest.raises(SourceError, match="gone"):
        Ingestion(Scripted(SourceError("gone")), Vocabulary.given(WORDS), Noting, blanks=True).run()


@click.command()
@source_options
@user_option
def users(sources, file_format, text_field, compression, max_documents, user_field):
    """Print the users of a poll."""
    source = open_sources(sources, file_format, text_field, compression, user_field)
    click.echo(source.poll(9).users)
    source.close()


def test_the_option_names_the_field_of_the_users(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "by": {"id": 7}}\n{"text": "two"}\n')
    for options, wanted in ([], "[]"), (["--user-field", "by.id"], "['7', None]"):
        assert CliRunner().invoke(users, [str(path), *options]).stdout == f"{wanted}\n"
    refused = CliRunner().invoke(users, [str(path), "--format", "text", "--user-field", "x"])
    assert isinstance(refused.exception, InvalidSettingError)
    assert "format with fields" in str(refused.exception)
