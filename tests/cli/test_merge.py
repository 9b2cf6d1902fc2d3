"""``streamlda projection`` and ``streamlda merge``: what they print, write and refuse."""

import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.model.topic_model import load
from streamlda.simulate import PlantedLDA
from streamlda.storage.merge import load_projection
from streamlda.storage.store import Store
from streamlda.text.vocabulary import Vocabulary
from tests.cli.conftest import refused, run

D = 30
WORDS = Vocabulary.given([f"w{i}" for i in range(D)])
SETTINGS = EngineSettings(
    n_components=3, n_features=D, warmup_documents=250, oversampling=5, refine=False
)


def save(folder, engine, partition, words=WORDS):
    position = {
        **{"cluster": "c", "topic": "news", "topic_id": "t", "partitions": [partition]},
        **{"offsets": {str(partition): engine.documents_seen}, "lost": {}},
    }
    with Store.open(folder) as store:
        store.write(store.capture(engine, position, words))
    return folder


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, D, seed=4, topic_concentration=0.1).documents(3000)


@pytest.fixture
def daemons(tmp_path, documents):
    """A daemon with a projection of its own; one made of it; three daemons that begin with that."""
    first = Engine(SETTINGS)
    first.add(documents.rows(0, 1000))
    save(tmp_path / "first", first, 9)
    said = run("projection", tmp_path / "first", "-o", tmp_path / "map").stderr
    made = load_projection(tmp_path / "map")
    assert said == f"projection {made.digest}: 30 words\nprojection file: {tmp_path / 'map'}\n"
    for n in range(3):
        engine = Engine(SETTINGS, shared_projection=made.beginning)
        engine.add(documents.rows(1000 * n, 1000 * n + 1000))
        save(tmp_path / str(n), engine, n)
    return [tmp_path / str(n) for n in range(3)]


def test_daemons_that_share_a_projection_are_merged_to_one_model(daemons, tmp_path, documents):
    said = run("merge", *daemons, "--output", tmp_path / "model").stderr
    assert "3,000 documents of 3 sources\n" in said
    assert "3 topics over 30 words\n" in said
    model = load(tmp_path / "model")
    assert (model.documents_seen, model.tokens_seen) == (3000, documents.lengths.sum())
    assert model.vocabulary == WORDS
    assert model.settings["merged_states"] == 3
    # Of one folder it is the model of its daemon.
    said = run("merge", tmp_path / "first", "-o", tmp_path / "model", "--quiet").stderr
    assert "documents of" not in said
    assert load(tmp_path / "model").documents_seen == 1000
    # A shared projection is given on, and a better one is made where that is asked for.
    again, better = tmp_path / "again", tmp_path / "better"
    assert run("projection", daemons[0], "-o", again, "--quiet").stderr == ""
    assert again.read_bytes() == (tmp_path / "map").read_bytes()
    run("projection", daemons[0], "-o", better, "--renew")
    assert load_projection(better).digest != load_projection(again).digest


def test_what_cannot_be_joined_is_one_line_and_an_exit_code(daemons, tmp_path):
    one, two, _ = daemons
    empty, none, gone = (tmp_path / name for name in ("empty", "none", "gone"))
    Store.open(empty).close()
    save(none, Engine(SETTINGS), 5)
    model = ("-o", tmp_path / "model")
    before = sorted(path.name for path in one.iterdir())
    for arguments, wanted, code in (
        (("merge", *model), "Missing argument", 2),
        (("merge", one), "Missing option '--output'", 2),
        (("merge", one, two, one, *model), "in two of the states", 78),
        (("merge", one, tmp_path / "first", *model), ",None; make one", 78),
        (("merge", one, "-o", tmp_path / "no" / "model"), "missing or not writable", 78),
        (("merge", one, gone, *model), "has no index", 65),
        (("projection", gone, *model), "has no index", 65),
        (("merge", empty, *model), "let the daemon save first", 65),
        (("merge", none, *model), "documents_seen=0", 65),
        (("projection", none, *model), "documents_seen=0", 65),
        (("projection", empty, *model), "let the daemon save first", 65),
    ):
        assert wanted in refused(*arguments, code=code), arguments
    assert not (tmp_path / "model").exists()
    assert sorted(path.name for path in one.iterdir()) == before
    assert all((folder / "index").stat().st_size > 0 for folder in daemons)
