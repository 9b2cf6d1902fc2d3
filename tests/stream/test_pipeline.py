"""The pipeline between a source and what learns: its blocks, its account, its releases."""

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlda.documents import AHEAD, UNDATED
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import AccountError, InvalidSettingError, VocabularyError
from streamlda.learner import Learner, LearnerProgress, PrivateProgress
from streamlda.model.over_time import Interval, Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.storage.store import Store
from streamlda.stream import pipeline as blocks
from streamlda.stream import vocabulary_choice
from streamlda.stream.counts import Account, RecordCounts
from streamlda.stream.event_time import parse_event_time
from streamlda.stream.pipeline import Blocks, Pipeline, ReleaseResult
from streamlda.stream.source import WHOLE, Behind, RecordBatch, RecordLocation, Reject
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from tests.corpora import batch_of
from tests.engine.kinds import assert_same_state
from tests.run.test_opening import TEXTS, run_settings

WORDS = ("apple", "bread", "cheese", "dates")
GIVEN = Vocabulary.given(WORDS)


def engine(vocabulary, first_slot=0):
    return Engine(EngineSettings(n_components=2, n_features=vocabulary.n_features, refine=False))


def learner_of(documents=10**6, **more):
    return VocabularyLearner(documents=documents, max_document_frequency=1.0, **more)


def corpus(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 6, p=rng.dirichlet([0.4] * 4))) for _ in range(n)]


def feed(words, *batches, **more):
    """Return a pipeline that was given these records, and its learner all documents."""
    made = Pipeline(words, engine, **more)
    for batch in batches:
        made.add(batch)
    made.flush()
    return made


class Noting(Learner):
    """A learner that counts record slots, and notes its rows, users, bins and releases."""

    counts_slots = True

    def __init__(self, vocabulary, first_slot):
        self.n_features, self.first_slot = vocabulary.n_features, first_slot
        self.lengths, self.users, self.bins, self.facts = [], [], [], []

    @property
    def due(self):
        return 9 - len(self.lengths) if not self.facts else None

    @property
    def private(self):
        return PrivateProgress(len(self.lengths) > 4, 0, "", False)

    def add(self, batch, users=None, /):
        self.lengths += batch.lengths.tolist()
        self.users.append(users)
        self.bins += [None] * len(batch) if batch.bins is None else batch.bins.tolist()
        return int(batch.n_documents)

    def release(self, vocabulary=None, settings=None):
        self.facts.append(settings)
        rows = np.full((1, self.n_features), 1 / self.n_features)
        return TopicModel(components=rows, alpha=np.ones(1), background=rows[0])


class Dating(Noting):
    """A learner without slots, which gives a model of the time bins of its documents."""

    counts_slots, due, private = False, Learner.due, Learner.private
    progress = LearnerProgress(late=7)

    def release(self, vocabulary=None, settings=None):
        times = {"starts": [0], "tokens": [[1.0]], "documents": [len(self.bins)]}
        return replace(
            super().release(vocabulary, settings),
            interval=Interval(documents=len(self.bins), tokens=0),
            timeline=Timeline(unit="day", **times),
        )


@given(st.lists(st.integers(0, 120), max_size=5), st.booleans(), st.sets(st.integers(0, 5)))
@example([7, 14, 21, 28], True, {1, 3})
def test_equal_streams_give_equal_engines_however_they_arrive(cuts, learned, restarts):
    texts, times = corpus(120), [None if n % 7 == 3 else n * 9000.5 for n in range(120)]
    words = learner_of(50) if learned else GIVEN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 33)
        whole = feed(words, RecordBatch(texts, times=times), time_bins="day")
        parts, start = Pipeline(words, engine, time_bins="day"), 0
        for number, stop in enumerate([*sorted(cuts), len(texts)]):
            parts.add(RecordBatch(texts[start:stop], times=times[start:stop]))
            start = stop
            if number in restarts and parts.learner is not None:
                parts = restore(parts, words)
        assert parts.learner.documents_seen % 33 == 0
        parts.flush()
    assert parts.vocabulary == whole.vocabulary
    assert parts.vocabulary.words == WORDS
    assert parts.vocabulary_documents == whole.vocabulary_documents == (50 if learned else 0)
    assert parts.counts == whole.counts
    assert parts.values()["span"] == whole.values()["span"] == [0.0, 119 * 9000.5]
    assert_same_state(parts.learner, whole.learner)


def restore(before, words):
    after = Pipeline(words, engine, time_bins="day")
    values = json.loads(json.dumps(before.values()))
    learner = Engine.from_state(*before.learner.state())
    after.restore(before.vocabulary, learner, values, before.blocks.waiting)
    return after


@pytest.mark.parametrize("words", [GIVEN, learner_of(3)])
def test_documents_have_their_bins_and_models_the_span_of_those_learned_from(words):
    text, day = "apple bread cheese", 86_400
    dated = Pipeline(words, Dating, time_bins="year")
    records = [text, None, "apple", text, text, text, "apple"]
    dated.add(RecordBatch(records, times=[2 * day + 7.5, None, 1e9, None, -1.0, 3.0, 1e11]))
    first = dated.release().model
    assert dated.learner.bins == [0, 978_307_200, UNDATED, -365 * day, 0, AHEAD]
    # The short documents, of the year 2001 and of one to come, are not learned from.
    assert first.interval.start == "1969-12-31T23:59:59+00:00"
    assert first.interval.end == "1970-01-03T00:00:07.500000+00:00"
    assert first.timeline.unit == "year"
    dated.add(RecordBatch([text]))
    second = dated.release().model
    assert (second.interval.start, second.interval.end) == (None, None)
    assert dated.learner.bins[-1] == UNDATED
    assert dated.counts.undated == 2
    assert dated.figures()["in_no_bin"] == (2, 0, 7)


#: Now, in the tests of clocks that are wrong.
NOW = 1_760_000_000.0


@pytest.mark.parametrize(
    "time", [NOW + 3601, NOW * 1000 + 4e6, "2031-01-01", "2031", 2031, 9999, 1e18 * 8, "99991231"]
)
def test_a_time_ahead_of_the_clock_moves_no_time_line(monkeypatch, time):
    monkeypatch.setattr("streamlda.stream.pipeline.time.time", lambda: NOW)
    dated = Pipeline(GIVEN, Dating, time_bins="day")
    times = [NOW - 60, parse_event_time(time), NOW + 3599]
    dated.add(RecordBatch(["apple bread cheese"] * 3, times=times))
    model = dated.release().model
    assert dated.figures()["in_no_bin"] == (0, 1, 7)
    assert dated.learner.bins[1] == AHEAD
    assert AHEAD not in (dated.learner.bins[0], dated.learner.bins[2])
    assert model.interval.end == "2025-10-09T09:53:19+00:00"
    assert dated.values()["counts"]["ahead"] == 1


def test_words_are_learned_from_the_first_documents_only(monkeypatch):
    texts = ["apple bread cheese", "bread cheese apple"] * 5 + ["dates dates dates apple"] * 20
    found = feed(learner_of(10), RecordBatch(texts[:20]), RecordBatch(texts[20:]))
    assert found.vocabulary.words == ("apple", "bread", "cheese")
    assert found.vocabulary_documents == 10
    assert (found.counts.unseen_tokens, found.counts.tokens) == (60, 30 + 80)
    # From those that have come at a release, and from a bounded number of characters.
    made = Pipeline(learner_of(), engine)
    made.add(RecordBatch(corpus(40)))
    assert (made.learner, made.progress.rounds, made.has_words) == (None, 0, False)
    model = made.release().model
    assert model.vocabulary.words == WORDS
    assert (model.documents_seen, model.settings["vocabulary_documents"]) == (40, 40)
    monkeypatch.setattr(vocabulary_choice, "VOCABULARY_CHARACTERS", 1000)
    found = feed(learner_of(), RecordBatch(["apple bread cheese " * 10] * 20))
    assert found.vocabulary_documents == 6


@pytest.mark.parametrize(("documents", "least"), [(3, 1), (399, 1), (600, 3), (5000, 5)])
def test_least_document_frequency_grows_with_the_documents(documents, least):
    rare = [f"apple bread {word}" for word in ("fig", "grape", "honey", "kiwi", "lemon")]
    texts = []
    for i, text in enumerate(rare[:least]):
        texts += [text] * (i + 1)
    texts += ["cheese"] * (documents - len(texts))
    words = VocabularyLearner(max_document_frequency=1.0).learn(texts).words
    found = [text.split()[2] in words for text in rare[:least]]
    assert found == [i + 1 >= least for i in range(least)]


def test_counts_of_parts_add_up():
    counts = RecordCounts()
    for reason in ("not-utf8", "too-long", "not-utf8"):
        counts.update(RecordCounts(3, 2, unseen_tokens=4, rejects=Counter([reason])))
    assert (counts.records, counts.documents, counts.unseen_tokens) == (9, 6, 12)
    assert counts.rejects == {"not-utf8": 2, "too-long": 1}


def test_documents_of_few_words_are_learned_where_topics_are_refined():
    """Each record has one outcome; those without a known word are rejects."""
    settings = EngineSettings(n_components=2, n_features=GIVEN.n_features)
    made = Pipeline(GIVEN, lambda *_: Engine(settings))
    made.add(RecordBatch(["apple", "apple bread", "unknown", None, "apple bread cheese"]))
    expected = {"learned": 3, "short": 1, "rejected": 0, "blank": 1, "skipped": 0}
    assert made.outcomes == expected
    assert (made.counts.short, made.counts.few_words) == (3, 2)


def test_every_record_came_to_something_also_over_a_restart():
    made = Pipeline(learner_of(4), engine)
    batch = RecordBatch([*corpus(2), None, None, "apple"], [Reject("a", 3, "not-json")])
    made.add(batch)
    # Those that wait for the words came to nothing yet.
    assert made.outcomes == {"learned": 0, "short": 0, "rejected": 1, "blank": 1, "skipped": 0}
    made.add(RecordBatch(["apple", "apple bread cheese"]))
    made.skip(7)
    expected = {"learned": 3, "short": 2, "rejected": 1, "blank": 1, "skipped": 7}
    assert made.outcomes == expected
    assert sum(expected.values()) == made.records
    values = json.loads(json.dumps(made.values()))
    again = Pipeline(GIVEN, engine)
    again.restore(GIVEN, made.learner, values)
    assert again.outcomes == expected


def test_an_engine_gives_snapshots_by_its_schedule():
    texts = corpus(250)
    made = Pipeline(GIVEN, engine, every=100, most=2, about={"stream": "s"})
    due, models = [], []
    for text in texts[:200]:
        due.append(made.due)
        made.add(RecordBatch([text]))
        if made.due == 0:
            assert made.since_release == 100
            models.append(made.release().model)
    assert due == [*range(100, 0, -1), *range(100, 0, -1)]
    assert [model.documents_seen for model in models] == [100, 200]
    assert [model.settings["places"] for model in models] == [100, 200]
    assert models[0].settings["stream"] == "s"
    assert (made.due, made.snapshots, made.ends_well) == (None, 2, False)
    with pytest.raises(InvalidSettingError, match="records=1 due=None; call release first"):
        made.add(RecordBatch(["apple"]))
    # Without a schedule the end gives one, if anything came since the last.
    made = Pipeline(GIVEN, engine)
    assert made.due > 10**9
    for documents in (50, 59):
        made.add(RecordBatch(corpus(documents - made.counts.documents)))
        assert made.ends_well
        assert made.release().model.documents_seen == documents
        assert not made.ends_well


def test_what_cannot_be_learned_from_is_refused():
    made = Pipeline(learner_of(), engine)
    made.add(RecordBatch(["1 2 3"] * 3))
    assert "documents=3" in made.release().missed
    with pytest.raises(VocabularyError, match="documents=3"):
        feed(learner_of(3), RecordBatch(["1 2 3"] * 3))
    made = Pipeline(GIVEN, lambda *_: Engine(EngineSettings(n_components=2, n_features=3)))
    made.add(RecordBatch(["apple bread dates"]))
    with pytest.raises(ValueError, match="n_features=4 expected=3"):
        made.flush()
    made = Pipeline(GIVEN, Noting)
    with pytest.raises(InvalidSettingError, match="records=10 due=9; call release first"):
        made.add(RecordBatch([None] * 10))
    assert made.records == 0


def test_every_record_takes_a_slot_blank_where_there_is_no_document():
    rejects = [Reject("a.txt", 2, "not-utf8"), Reject("a.txt", 6, "not-json")]
    made = Pipeline(GIVEN, Noting, about={"stream": "s"})
    users = [None, "ann", None, "7", None, None]
    batches = [
        RecordBatch([None]),
        RecordBatch([None, "apple bread dates", None, "apple", None, None], rejects, users=users),
        RecordBatch([None, "bread " * 4], [Reject("b.txt", 1, "too-long")]),
    ]
    dues = []
    for batch in batches:
        dues.append((made.due, made.ends_well))
        made.add(batch)
    assert dues == [(9, False), (8, False), (2, True)]
    assert made.learner.lengths == [0, 0, 3, 0, 1, 0, 0, 0, 4]
    assert made.learner.users == [None, users, None]
    assert (made.records, made.counts.documents, made.counts.short) == (9, 3, 1)
    assert made.counts.rejects == {"not-utf8": 1, "not-json": 1, "too-long": 1}
    assert made.due == 0
    assert made.release().model is not None
    assert made.learner.facts == [{"stream": "s", "places": 9, "snapshot": 1}]
    assert (made.due, made.snapshots) == (None, 1)
    assert "apple" not in str(made.make_shortage_error())
    assert "got slots=9" in str(made.make_shortage_error())
    # What a release used is skipped behind a crash.
    made = Pipeline(GIVEN, Noting, about={"stream": "s"})
    made.add(RecordBatch([None] * 3))
    assert made.facts(6) == {"stream": "s", "places": 9, "snapshot": 1}
    model = made.learner.release()
    made.skip(6)
    assert made.make_released(model) == ReleaseResult(model)
    assert (made.records, made.since_release, made.snapshots) == (9, 0, 1)


def batch(passed, **records):
    """Return records of parts, the last of each of the number that is passed."""
    at = [RecordLocation(part, 0) for part, n in records.items() for _ in range(n)]
    return RecordBatch([None] * len(at), locations=at, behind=Behind({}, passed))


#: What is taken from a stream of parts at 10 and 0, how many records the state counts, and whether
#: that is right.
TAKEN = {
    "each-once": ([batch({"a": 12, "b": 3}, a=2, b=3), batch({"a": 13, "b": 3}, a=1)], 6, True),
    "nothing": ([], 0, True),
    "dropped": ([batch({"a": 12, "b": 0}, a=2), batch({"a": 15, "b": 0}, a=1)], 3, False),
    "twice": ([batch({"a": 12, "b": 0}, a=2)] * 2, 4, False),
    "made-up-for-elsewhere": ([batch({"a": 12, "b": 3}, a=3, b=2)], 5, False),
    "another-count": ([batch({"a": 12, "b": 0}, a=2)], 3, False),
    "new-part": ([batch({"a": 10, "b": 0, "c": 2}, c=2), batch({"c": 3}, c=1)], 3, True),
    "part-that-left": ([batch({"a": 12, "b": 0}, a=2), batch({"b": 1}, b=1)], 3, True),
}


@pytest.mark.parametrize("kept", [False, True], ids=["at-once", "resumed"])
@pytest.mark.parametrize(("batches", "records", "right"), TAKEN.values(), ids=TAKEN)
def test_an_account_is_right_or_refused(batches, records, right, kept):
    account, passed = Account(), {"a": 10, "b": 0}
    account.begin(passed)
    for each in batches:
        account.add(each)
        passed = each.behind.passed
        account = Account(json.loads(json.dumps(account.to_json()))) if kept else account
    if right:
        account.check(passed, records)
        shown = account.count_records(passed)
        assert shown["records"] == shown["passed"] == records
        # A source that tells no part has no account.
        account.begin({})
        account.check({}, 7)
        assert account.count_records({}) is None
        return
    with pytest.raises(AccountError, match=r"the state lacks records .* got records="):
        account.check(passed, records)


def test_a_private_release_of_slots_that_are_not_those_of_the_log_is_not_paid(tmp_path):
    """A lost record would let all later slots stand for other records than after a restart."""
    budget = {"privacy.epsilon": 12.0, "privacy.delta": 1e-3, "snapshots.every": 500}
    budget |= {"vocabulary.hash_bits": 5, "privacy.ledger": str(tmp_path / "ledger")}
    settings = run_settings("private", tmp_path / "run", budget)
    lines = [json.dumps({"text": text}) for text in TEXTS]
    (tmp_path / "run" / "documents.jsonl").write_text("\n".join(lines))
    with ExitStack() as opened, Store.open(output=tmp_path / "p", private=True) as output:
        ledger = open_ledger(settings, opened, output, print)
        pipeline = open_pipeline(settings, ledger=ledger).pipeline
        pipeline.begin_at(Behind({"at": 0}, {WHOLE: 0}))
        slots, before = pipeline.due, ledger.generation
        lost = {WHOLE: slots + 1}
        pipeline.add(RecordBatch(["a few words of it"] * slots, behind=Behind({}, lost)))
        assert pipeline.due == 0
        with pytest.raises(AccountError):
            pipeline.release()
        assert ledger.generation == before
        assert ledger.report()["pending"] == []


def ends_of(sizes):
    """Return the rows behind which a block ends: 7 rows or 20 words since the one before."""
    ends, rows, words = [0], 0, 0
    for number, size in enumerate(sizes, 1):
        rows, words = rows + 1, words + size
        if rows == 7 or words >= 20:
            ends.append(number)
            rows = words = 0
    return ends


def content(batch):
    return [array.tolist() for array in batch.arrays.values()]


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 30), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=12),
    restarts=st.sets(st.integers(0, 12)),
)
def test_any_split_of_the_rows_gives_the_same_blocks(sizes, cuts, restarts):
    batch, ends = batch_of([[*range(size)] for size in sizes], 40), ends_of(sizes)
    taken, found, start = Blocks(), [], 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 7)
        patch.setattr(blocks, "BLOCK_COUNTS", 20)
        for number, stop in enumerate([*sorted(cuts), len(sizes)]):
            found += [content(block) for block in taken.add(batch.rows(start, stop))]
            start = max(start, min(stop, len(sizes)))
            if number in restarts:
                taken = Blocks(taken.waiting)
    assert found == [content(batch.rows(*pair)) for pair in pairwise(ends)]
    rest = batch.rows(ends[-1], len(sizes))
    assert (taken.waiting is None) == (len(rest) == 0)
    assert taken.waiting is None or content(taken.waiting) == content(rest)


def test_what_waits_is_a_copy_until_it_is_flushed():
    batch, taken = batch_of([[0, 1, 2]] * 2, 40), Blocks()
    wanted = content(batch)
    assert list(taken.add(batch)) == []
    batch.counts.setflags(write=True)
    batch.counts[:] = 99
    assert content(taken.waiting) == content(taken.flush()) == wanted
    assert taken.waiting is None
