"""Private runs whose ledger is behind what it has released, or another one: they are refused."""

import shutil
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from streamlda.errors import InvalidSettingError, LedgerError
from streamlda.model.topic_model import load
from streamlda.privacy.ledger.ledger import Evidence
from streamlda.privacy.statement import not_private
from streamlda.run.opening import capture, open_ledger, open_pipeline, open_store
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from streamlda.stream.source import poll
from tests.service.daemon_process import private_settings, texts, write_documents

WINDOW = 1000


class Group:
    def __init__(self):
        self.left, self.source = [], None

    def __getattr__(self, name):
        return getattr(self.source, name)

    def notes(self):
        return self.left


class Scene(NamedTuple):
    folder: Any
    #: The same for all copies: a checkpoint is of that file.
    documents: Any
    group: Group

    @contextmanager
    def opened(self, **flags):
        folder = self.folder
        (folder / "run").mkdir(exist_ok=True)
        outputs = {"output.folder": str(folder / "out"), "output.file": str(folder / "model")}
        given = {"snapshots.every": WINDOW, **outputs, **flags}
        given = private_settings(folder / "run", self.documents, **given)
        settings = load_settings(environment={}, flags=given)
        with ExitStack() as opened:
            store = opened.enter_context(open_store(settings))
            ledger = open_ledger(settings, opened, store, print)
            run = open_pipeline(settings, store, ledger)
            self.group.source = opened.enter_context(closing(run.open_source()))
            run.resume_after_releases(self.group)
            yield run, store, ledger

    def learn(self, **flags):
        with self.opened(**flags) as (run, store, ledger):
            pipeline, model = run.pipeline, None
            while model is None:
                while pipeline.due:
                    pipeline.add(poll(self.group, pipeline.due))
                model = pipeline.release().model
                store.write(capture(pipeline, store))
                self.group.left = [Evidence("", ledger.ledger_id, ledger.generation).note]
            store.publish(model)
        return model

    def left(self, *kinds, lost=False):
        """Remove what shows that the ledger was further, or was (`lost`), but for these kinds."""
        paths = {"folder": "out", "file": "model", "releases": "run/ledger.releases"}
        if lost:
            paths["documents"] = "run/ledger.documents"
        for kind, name in paths.items():
            path = self.folder / name
            if kind not in kinds and path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if "group" not in kinds:
            self.group.left = []


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A run that published twice, and what its machine was like after the first time."""
    folder = tmp_path_factory.mktemp("published")
    documents = write_documents(folder / "documents.jsonl", texts(3 * WINDOW))
    scene = Scene(folder, documents, Group())
    scene.learn()
    shutil.copytree(scene.folder / "run", scene.folder / "before")
    scene.learn()
    return scene


@pytest.fixture
def scene(published, tmp_path):
    shutil.copytree(published.folder, tmp_path / "scene")
    found = Scene(tmp_path / "scene", published.documents, Group())
    found.group.left = [*published.group.left]
    return found


def roll_back(scene):
    """Restore ledger, documents and checkpoints as they were; what was released since stays."""
    releases, kept = scene.folder / "run/ledger.releases", scene.folder / "kept"
    releases.rename(kept)
    shutil.rmtree(scene.folder / "run")
    shutil.copytree(scene.folder / "before", scene.folder / "run")
    shutil.copytree(kept, releases, dirs_exist_ok=True)


def lose_ledger(scene):
    for path in (scene.folder / "run").glob("ledger*"):
        if path.is_file() and path.name != "ledger.documents":
            path.unlink()
    shutil.rmtree(scene.folder / "run/checkpoints")


KINDS = ["releases", "folder", "file", "group"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_copy_is_refused_by_each_thing_that_is_newer(scene, kind):
    roll_back(scene)
    scene.left(kind)
    before = (scene.folder / "run/ledger").read_bytes()
    with pytest.raises(LedgerError, match="is older than") as refused:
        scene.learn()
    assert "its budget counts as used up: bring the newest copy back" in str(refused.value)
    assert (scene.folder / "run/ledger").read_bytes() == before
    # Nothing that is newer: all of the machine is as it was, which nobody can tell.
    scene.left()
    assert scene.learn().settings["places"] == 2 * WINDOW


@pytest.mark.parametrize("kind", [*KINDS, "documents"])
def test_a_new_ledger_is_refused_beside_what_another_one_left(scene, kind):
    lose_ledger(scene)
    scene.left(kind, lost=True)
    # What a source shows is known when it is open, and the ledger is made before.
    rule = "is of another ledger" if kind == "group" else "beside what another one left"
    with pytest.raises(LedgerError, match=rule):
        scene.learn()
    assert (scene.folder / "run/ledger").exists() == (kind == "group")
    lose_ledger(scene)
    scene.left(lost=True)
    assert scene.learn().settings["places"] == WINDOW


def test_a_damaged_newest_snapshot_leaves_the_one_before_to_tell(scene):
    roll_back(scene)
    scene.left("folder")
    (scene.folder / "out/snapshot-000002").write_bytes(b"torn")
    scene.learn()
    lose_ledger(scene)
    scene.left("folder", lost=True)
    (scene.folder / "out/snapshot-000003").write_bytes(b"torn")
    with pytest.raises(LedgerError, match="beside what another one left"):
        scene.learn()


def test_two_ledgers_do_not_share_what_they_publish(scene):
    mine = {"privacy.ledger": "run/mine", "checkpoint.folder": "mine"}
    mine = {name: str(scene.folder / place) for name, place in mine.items()}
    apart = {"output.folder": str(scene.folder / "my-out"), "output.file": None}
    others = scene._replace(group=Group())
    others.learn(**mine, **apart)
    for taken in ({"output.folder": "out"}, {"output.file": "model"}):
        taken = {name: str(scene.folder / place) for name, place in taken.items()}
        with pytest.raises(LedgerError, match="is of another ledger"):
            others.learn(**mine, **(apart | taken))
    assert others.learn(**mine, **apart).settings["places"] == 2 * WINDOW


def test_models_of_0_1_0_show_the_ledger_alone_and_a_note_what_it_was_made_of():
    statement = {"ledger": "0" * 32}
    assert Evidence.of(statement, "w") == Evidence("w", "0" * 32, 0)
    assert Evidence.of({"ledger": "in memory"}, "w") is None
    assert Evidence.of({**statement, "generation": 7}, "w").generation == 7
    made = Evidence("", "0123456789abcdef" * 2, 12)
    assert Evidence.of_note(made.note, "") == made
    for other in ("", "offsets", made.note + " ", made.note.upper(), "streamlda x 1"):
        assert Evidence.of_note(other, "") is None


def test_private_snapshots_and_others_do_not_share_a_folder(scene):
    for private, folder in ((False, "out"), (True, "open")):
        if private:
            with Store.open(output=scene.folder / folder, private=False) as store:
                store.publish(replace(load(scene.folder / "model"), privacy=not_private()))
        with pytest.raises(InvalidSettingError, match="would lie in one folder with others"):
            Store.open(output=scene.folder / folder, private=private)
    Store.open(output=scene.folder / "out", private=True).close()
