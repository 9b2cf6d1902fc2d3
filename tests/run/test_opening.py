"""Pipelines from settings: the same whatever batches come, and wherever they resume."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.container import to_json
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.run.opening import capture, open_pipeline
from streamlda.run.parts import connect_by, name_published_stream, name_stream
from streamlda.settings.build import make_analyzer, public_words
from streamlda.settings.load import load_settings
from streamlda.storage.merge import save_projection
from streamlda.storage.store import Store
from streamlda.stream import pipeline as blocks
from streamlda.stream.source import Behind, RecordBatch, RecordLocation
from streamlda.text.vocabulary import Vocabulary
from tests.service import planted
from tests.service.daemon_process import settings_of, texts

TEXTS = texts(700)
#: Every seventh record brings no text.
ROWS = [None if i % 7 == 3 else text for i, text in enumerate(TEXTS)]
NAMES = planted.words(200)

SMALL = {"topics.oversampling": 5, "topics.warmup_documents": 100, "snapshots.every": 200}
KINDS = {
    "given": {"vocabulary.kind": "given"},
    # No document has so few topics, so that likelihood refines them.
    "hashed": {
        "vocabulary.hash_bits": 7,
        "topics.alpha_0": 0.1,
        "topics.representative_documents": 2,
    },
    "learned": {"vocabulary.kind": "learned", "vocabulary.size": 100, "vocabulary.documents": 150}
    | {"topics.representative_documents": 1, "topics.representative_texts": True},
    "projected": {},
    "started": {"topics.alpha_0": 10.0},
    "private": {},
}


def run_settings(kind, folder, flags=None):
    folder.mkdir(exist_ok=True)
    more = {**(SMALL if kind != "private" else {}), **KINDS[kind], "source.stream": "s"}
    if kind == "given":
        (folder / "words").write_text("\n".join(NAMES))
        more["vocabulary.file"] = str(folder / "words")
    if kind == "projected":
        more |= projected_flags(folder)
    if kind == "started":
        more |= started_flags(folder)
    flags = settings_of(folder, folder / "documents.jsonl", {**more, **(flags or {})})
    return load_settings(environment={}, flags=flags)


def new_pipeline(kind, folder, flags=None):
    return open_pipeline(run_settings(kind, folder, flags)).pipeline


def save(pipeline, store):
    pipeline.behind = Behind({"at": pipeline.records}, {})
    captured = capture(pipeline, store)
    if captured is not None:
        store.write(captured)
    return captured is not None


def projected_flags(folder):
    settings = EngineSettings(n_components=3, n_features=200, oversampling=5, refine=False)
    W = np.random.default_rng(0).normal(size=(200, 8))
    path = folder / "projection"
    save_projection(path, Engine(settings, shared_projection=W), Vocabulary.given(NAMES))
    return {"topics.projection_file": str(path)}


def started_flags(folder):
    """Return the flags of a run from the topics of another one over `NAMES`, made once."""
    path = folder / "start"
    if not path.exists():
        words = {"topics.alpha_0": 10.0, "topics.seed": 3, "snapshots.every": 400}
        pipeline = new_pipeline("given", folder / "first", words)
        pipeline.add(RecordBatch(ROWS[:400]))
        assert pipeline.release().model is not None
        assert save_projection(path, pipeline.learner, pipeline.vocabulary).refines
    return {"topics.projection_file": str(path)}


LEARNING = ["given", "hashed", "learned", "started"]


def run(kind, folder, cuts, restarts):
    pipeline, found = new_pipeline(kind, folder), []
    ends = sorted({*(cut % len(ROWS) for cut in cuts), *range(200, 700, 200), len(ROWS)} - {0})
    start = 0
    with Store.open(folder / "checkpoints") as store:
        for number, end in enumerate(ends):
            pipeline.add(RecordBatch(ROWS[start:end]))
            start = end
            if pipeline.due == 0:
                released = pipeline.release()
                assert released.model is not None
                found.append(content(released.model))
            if number in restarts and save(pipeline, store):
                opened = open_pipeline(run_settings(kind, folder), store)
                assert opened.checkpoint is not None
                assert opened.checkpoint.position == {"at": end}
                pipeline = opened.pipeline
                assert pipeline.records == end
    return found, pipeline


def content(model):
    arrays = (model.components, model.alpha, model.background)
    shown = [model.vocabulary.listed, model.representative_documents]
    values = to_json([shown, model.settings, model.diagnostics, model.documents_seen])
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays) + values.encode()


@pytest.fixture(scope="module", autouse=True)
def short_warm_ups():
    """Let warm-ups of 700 records be refined, which are too short for that elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamlda.engine.fit.LEAST_DOCUMENTS", 50)
        patch.setattr("streamlda.refinement.choice.ERRORS", -np.inf)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 64)
        return {kind: run(kind, tmp_path_factory.mktemp(kind), [], set())[0] for kind in LEARNING}


@pytest.mark.long
@pytest.mark.parametrize("kind", LEARNING)
@given(data=st.data())
@settings(max_examples=3)
def test_any_batches_and_restarts_give_the_same_snapshots(
    kind, data, undisturbed, tmp_path_factory
):
    cuts = data.draw(st.lists(st.integers(1, len(ROWS) - 1), max_size=12))
    restarts = data.draw(st.sets(st.integers(0, 15)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_ROWS", 64)
        found, pipeline = run(kind, tmp_path_factory.mktemp("run"), cuts, restarts)
    assert len(found) == 3
    assert found == undisturbed[kind]
    assert (pipeline.records, pipeline.due, pipeline.since_release) == (700, 100, 100)
    if kind in ("hashed", "started"):
        assert all(b"start_documents" in snapshot for snapshot in found)
        assert "refinement" in pipeline.release().model.diagnostics
    # Words show every topic where columns are words.
    if kind in ("given", "started"):
        top_words = pipeline.release().model.top_words(10)
        words = [word.split("|")[0] for topic in top_words for word, _ in topic]
        assert set(words) <= set(NAMES)


def test_rounds_documents_and_snapshots_are_counted(tmp_path):
    pipeline = new_pipeline("hashed", tmp_path, {"snapshots.most": 1})
    pipeline.add(RecordBatch(ROWS[:90]))
    assert pipeline.progress.rounds == 0
    pipeline.add(RecordBatch(ROWS[90:200]))
    assert pipeline.due == 0
    assert pipeline.release().model is not None
    # The warm-up is over, and the last snapshot leaves none to come.
    assert (pipeline.progress.rounds, pipeline.due) == (1, None)
    # An engine with a projection from elsewhere has no warm-up.
    assert new_pipeline("projected", tmp_path).progress.rounds == 1
    assert new_pipeline("started", tmp_path).progress.rounds == 1
    # Too few documents give a reason and no model.
    pipeline = new_pipeline("hashed", tmp_path)
    pipeline.add(RecordBatch([None] * 200))
    released = pipeline.release()
    assert released.model is None
    assert released.missed
    assert pipeline.due == 200


def test_documents_are_shown_by_ids_or_places_and_texts_where_set(tmp_path):
    pipeline = new_pipeline("hashed", tmp_path)
    ids = [None if n % 2 else f"no {n}" for n in range(200)]
    locations = [RecordLocation("f", n, ids[n]) for n in range(200)]
    pipeline.add(RecordBatch(ROWS[:200], locations=locations))
    shown = pipeline.release().model.representative_documents
    names = {each["id"] for topic in shown for each in topic}
    assert names <= {ids[n] or f"f:{n}" for n in range(200)}
    assert len(names) > 3
    for kind, keys in (("given", None), ("hashed", 2), ("learned", 3)):
        pipeline = new_pipeline(kind, tmp_path / kind)
        pipeline.add(RecordBatch(ROWS[:200]))
        shown = pipeline.release().model.representative_documents
        assert (shown is None) is (keys is None)
        for each in (each for topic in shown or () for each in topic):
            place, number = each["id"].split(":")
            assert (place, len(each)) == ("stream", keys)
            assert each.get("text", ROWS[int(number) - 1]) == ROWS[int(number) - 1] is not None


@pytest.mark.parametrize("kind", ["projected", "started"])
def test_a_run_continues_from_its_own_beginning_alone(tmp_path, kind):
    asked = run_settings(kind, tmp_path)
    pipeline = open_pipeline(asked).pipeline
    pipeline.add(RecordBatch(ROWS[:200]))
    with Store.open(tmp_path / "c") as store:
        save(pipeline, store)
        assert open_pipeline(asked, store).pipeline.records == 200
        assert pipeline.release().model is not None
        path = asked.topics.projection_file
        save_projection(path, pipeline.learner, pipeline.vocabulary, renew=True)
        with pytest.raises(InvalidSettingError, match=r"projection='\w{16}' \(saved: '\w{16}'"):
            open_pipeline(asked, store)
    if kind == "started":
        # A run that begins with shared topics must refine.
        asked = run_settings(kind, tmp_path, {"topics.refine": False})
        with pytest.raises(InvalidSettingError, match=r"sums was given a start.*refine=False"):
            open_pipeline(asked)


def test_nothing_is_captured_and_no_clock_ends_it_before_the_words_are_known(tmp_path):
    pipeline = new_pipeline("learned", tmp_path)
    with Store.open(tmp_path / "c") as store:
        for start, known in ((0, False), (100, True)):
            pipeline.add(RecordBatch(ROWS[start : start + 100]))
            assert save(pipeline, store) == pipeline.has_words == known


def test_other_words_than_the_saved_ones_are_refused(tmp_path):
    pipeline = new_pipeline("hashed", tmp_path)
    pipeline.add(RecordBatch(ROWS[:200]))
    with Store.open(tmp_path / "c") as store:
        save(pipeline, store)
        with pytest.raises(InvalidSettingError, match="words="):
            open_pipeline(run_settings("given", tmp_path), store)


def test_another_distance_of_snapshots_counts_from_the_last_release(tmp_path):
    """After 500 records and a release at 400, the next multiple behind 400 is due."""
    pipeline = new_pipeline("hashed", tmp_path)
    for end in (200, 400, 500):
        pipeline.add(RecordBatch(ROWS[pipeline.records : end]))
        if pipeline.due == 0:
            pipeline.release()
    with Store.open(tmp_path / "c") as store:
        save(pipeline, store)
        for every, due in ((120, 0), (150, 0), (180, 40), (1000, 500)):
            changed = run_settings("hashed", tmp_path, {"snapshots.every": every})
            assert open_pipeline(changed, store).pipeline.due == due


KAFKA = {"kafka.bootstrap": "localhost:9", "kafka.topic": "news"}


def load(flags):
    return load_settings(environment={}, flags=flags)


def test_a_stream_has_a_name():
    for flags, name in (
        ({**KAFKA, "kafka.partitions": "0,2"}, "kafka:news/0,2"),
        ({**KAFKA, "source.stream": "mine"}, "mine"),
        ({"source.files": ["/a/../b", "s3://c/d"]}, "/b s3://c/d"),
        ({"source.files": ["-"]}, "stdin"),
    ):
        assert name_stream(load(flags)) == name


PRIVATE = {"privacy.epsilon": 1.0, "privacy.delta": 1e-6, "privacy.ledger": "/l"}
PRIVATE |= {"vocabulary.file": "/w", "snapshots.every": 500}


def test_private_models_do_not_tell_where_files_lie():
    def named(*files, **more):
        return name_published_stream(load({"source.files": list(files), **PRIVATE, **more}))

    one, other = named("/north/a.jsonl"), named("/south/a.jsonl")
    assert one != other
    assert one.partition(", ")[0] == other.partition(", ")[0] == "a.jsonl"
    assert named("https://host/b.jsonl?key=canary").startswith("b.jsonl, ")
    many = named(*(f"/north/{number}.jsonl" for number in range(1000)))
    assert many.startswith("0.jsonl and 999 more, ")
    assert named("/north", **{"source.kind": "follow"}).startswith("north, ")
    assert named("/north/a.jsonl", **{"source.stream": "mine"}) == "mine"
    assert name_published_stream(load({"source.files": ["/north/a.jsonl"]})) == "/north/a.jsonl"


def test_secrets_are_named_and_not_read(tmp_path):
    flags = {**KAFKA, "kafka.protocol": "SASL_SSL", "kafka.mechanism": "PLAIN"}
    flags["kafka.username"] = "reader"
    file = str(tmp_path / "absent")
    found = connect_by(load({**flags, "kafka.password_file": file}).kafka)
    assert (found["password_file"], found["username"]) == (file, "reader")
    variable = {"STREAMLDA_KAFKA_PASSWORD": "canary"}
    found = connect_by(load_settings(environment=variable, flags=flags).kafka)
    assert found["password_env"] == "STREAMLDA_KAFKA_PASSWORD"
    assert "canary" not in str(found)


def test_words_are_split_and_found_as_the_settings_say(tmp_path):
    (tmp_path / "stop").write_text("news\n")
    for flag, wanted in (
        ({"vocabulary.token_pattern": "[a-z0-9]+"}, ["b2b", "news"]),
        ({"vocabulary.stop_words": "none"}, ["the", "b2b", "news"]),
        ({"vocabulary.stop_words": str(tmp_path / "stop")}, ["the", "b2b"]),
    ):
        words = load({**KAFKA, **flag}).vocabulary
        assert make_analyzer(words).build_analyzer()("the b2b news") == wanted
    given = {"vocabulary.file": str(tmp_path / "stop")}
    for flag, n_features in ((given, 1), ({"vocabulary.hash_bits": 4}, 16)):
        assert public_words(load({**KAFKA, **flag})).n_features == n_features
    assert public_words(load({**KAFKA, "vocabulary.kind": "learned"})) is None
