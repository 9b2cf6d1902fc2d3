"""Private runs over a topic: their releases take absolute offsets of one log, and no others."""

import json
import time
from contextlib import ExitStack, contextmanager

import pytest

from streamlda.errors import LedgerError
from streamlda.privacy.ledger import read_report
from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.run.parts import skip_records
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.kafka.topics import SECONDS
from tests.service.daemon_process import private_settings, texts

pytestmark = pytest.mark.long

#: Records of a window, and those that are there before a run that starts with the latest.
WINDOW, BEFORE = 400, 100


@pytest.fixture
def open_run(topics, topic, tmp_path):
    @contextmanager
    def open_run(folder="run", **flags):
        given = private_settings(tmp_path, "", **{"snapshots.every": WINDOW, "kafka.topic": topic})
        del given["source.files"], given["source.stream"]
        given |= {"source.kind": "kafka", "source.format": "text", "kafka.partitions": "0"}
        given |= {"kafka.bootstrap": topics.bootstrap, "checkpoint.folder": str(tmp_path / folder)}
        given |= {name.replace("__", "."): value for name, value in flags.items()}
        settings = load_settings(None, {}, given)
        with ExitStack() as opened:
            store = opened.enter_context(Store.open(tmp_path / folder))
            output = opened.enter_context(Store.open(private=True))
            ledger = open_ledger(settings, opened, output, print)
            run = open_pipeline(settings, store, ledger)
            source = run.open_source()
            opened.callback(source.close)
            run.resume_after_releases(source)
            until = time.monotonic() + SECONDS

            def is_in_time(n_records):
                assert time.monotonic() < until, "what is to be skipped does not come"

            skip_records(source, run.slots_to_skip, run.pipeline, is_in_time)
            yield run, source, store

    return open_run


def release(run, source, most=1000):
    while run.pipeline.due:
        run.pipeline.add(source.poll(min(run.pipeline.due, most), 0.2))
    run.pipeline.release()


def ranges(tmp_path):
    return [each["documents"] for each in read_report(tmp_path / "ledger")["snapshots"]]


def as_bytes(documents):
    return [text.encode() for text in documents]


@pytest.fixture
def released(topics, topic, open_run):
    """Make one release of a run, which began with the latest record, and lose its checkpoints."""
    topics.fill(topic, as_bytes(texts(BEFORE)), as_bytes(texts(BEFORE, seed=2)))
    with open_run(kafka__start="latest") as (run, source, _):
        topics.send(topic, as_bytes(texts(WINDOW, seed=3)))
        release(run, source)
        return source.logs()[f"{topic}/0"]


@pytest.mark.parametrize(
    ("folder", "start", "begins"),
    [("run", "earliest", 0), ("new", "earliest", 0), ("run", "latest", 500)],
)
def test_without_checkpoints_a_run_does_not_begin_before_what_is_spent(
    folder, start, begins, released, open_run, tmp_path
):
    """Nor does it skip records that are not those of its release (hole 9 of the review)."""
    with (
        pytest.raises(LedgerError, match=rf"begins={begins} spent={released.next}; bring"),
        open_run(folder, kafka__start=start),
    ):
        pass
    assert len(ranges(tmp_path)) == 1


def test_a_release_takes_offsets_of_one_log_and_a_run_behind_it_other_documents(
    topics, topic, released, open_run, tmp_path
):
    """Of one topic of that name, in one cluster; a release has 6 records here."""
    kafka, topic_id, number = released.name.removeprefix("kafka:").split("/")
    assert kafka
    assert (len(topic_id), number) == (36, "0")
    assert ranges(tmp_path) == [[[released.name, BEFORE, released.next]]]
    assert released.next > BEFORE
    with open_run("new", kafka__start="latest") as (run, source, _):
        topics.send(topic, as_bytes(texts(WINDOW, seed=4)))
        release(run, source)
    assert ranges(tmp_path)[1][0][:2] == [released.name, BEFORE + WINDOW]


#: With this many a window, the first release has 240 records: three rounds of two partitions, or
#: of three one and a part of another.
MANY = {"snapshots.every": 16_000, "kafka.partitions": "all"}


@pytest.mark.parametrize("n_partitions", [2, 3])
def test_a_release_over_partitions_is_a_range_of_each(
    n_partitions, topics, topic, open_run, tmp_path
):
    """Without checkpoints a run continues behind it, and so it does with other lengths of polls."""
    rows = [as_bytes(texts(400, seed=n + 1)) for n in range(n_partitions)]
    topics.fill(topic, *rows)
    with open_run(**MANY) as (run, source, _):
        release(run, source, 97)
        ends = [(log.name, log.next) for log in source.logs().values()]
        slots = run.pipeline.records
    (taken,) = ranges(tmp_path)
    assert taken == [[name, 0, end] for name, end in ends]
    assert sum(end for _, end in ends) == slots == 240
    assert [end for _, end in ends] == {2: [128, 112], 3: [112, 64, 64]}[n_partitions]
    with open_run(**MANY) as (run, source, _):
        assert run.pipeline.records == slots
        assert [(log.name, log.next) for log in source.logs().values()] == ends


@pytest.mark.parametrize(
    "other", [{"kafka__start": "latest"}, {"kafka__partitions": "1,2"}, {"kafka__partitions": "0"}]
)
def test_without_checkpoints_a_run_skips_the_records_of_its_release_alone(
    other, topics, topic, open_run, tmp_path
):
    topics.fill(topic, *(as_bytes(texts(400, seed=n + 1)) for n in range(3)))
    with open_run(**MANY) as (run, source, _):
        release(run, source)
    with (
        pytest.raises(LedgerError, match="before releases of its log end"),
        open_run(**MANY | {name.replace("__", "."): value for name, value in other.items()}),
    ):
        pass
    assert len(ranges(tmp_path)) == 1


def test_what_a_user_may_add_holds_over_all_partitions(topics, topic, open_run):
    """One user is everywhere, with a word of its own in each partition."""
    rows = [[json.dumps({"text": f"w{n} w{n} w{n}", "user": "u"}).encode()] * 400 for n in range(3)]
    topics.fill(topic, *rows)
    by_user = {
        "source.format": "jsonl",
        "source.user_field": "user",
        "privacy.unit": "user",
        "privacy.documents_per_user": 2,
        "snapshots.most": 1,
    }
    with open_run(**MANY | by_user) as (run, source, _):
        learner = run.pipeline.learner
        while run.pipeline.due:
            run.pipeline.add(source.poll(run.pipeline.due, 0.2))
        assert list(learner.stage.sums.users.state()["accepted"]) == [2]
        assert run.pipeline.records == 240


def test_documents_copied_to_another_topic_are_charged_for_each(topics, topic, open_run, tmp_path):
    """The offsets are those of another log, and nothing that others see hangs on what they say."""
    rows = as_bytes(texts(WINDOW))
    for name in (topic, f"{topic}-copy"):
        topics.fill(name, rows)
    for folder, name in (("run", topic), ("new", f"{topic}-copy")):
        with open_run(folder, kafka__topic=name, snapshots__every=10 * WINDOW) as (run, source, _):
            release(run, source)
    report = read_report(tmp_path / "ledger")
    ((first, *_),), ((second, *_),) = (each["documents"] for each in report["snapshots"])
    assert first != second
    assert report["documents"]["repeated"] == report["documents"]["records"]
    assert report["documents"]["most"] == 2
