"""Checkpoints that are killed: scenes of a `tests.crashes.CrashProcess`.

All documents stay in the warm-up: no time is lost with topics.
"""

import hashlib
import json

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.kernels import load_kernels
from streamlda.simulate import PlantedLDA
from streamlda.storage.store import Store
from streamlda.text.vocabulary import Vocabulary
from tests.crashes import KILLED, die_at, fork, kill_at_steps, serve, wait

ROWS, BATCH = 1200, 100
WORDS = Vocabulary.given([f"w{i}" for i in range(30)])
SETTINGS = EngineSettings(n_components=3, n_features=30)


def position_of(learned):
    return {"news/0": learned // 2, "news/1": learned - learned // 2}


def learned_at(position):
    return sum(position.values())


def digest(learner):
    arrays, values = learner.state()
    content = b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays))
    return hashlib.blake2b(content + json.dumps(values, sort_keys=True).encode()).hexdigest()


def planted():
    """Return documents, and the digest of the state after each number of them, without a kill."""
    documents = PlantedLDA(3, 30, seed=4, topic_concentration=0.1).documents(ROWS)
    engine, found = Engine(SETTINGS), {}
    for start in range(0, ROWS + 1, BATCH):
        found[start] = digest(engine)
        engine.add(documents.rows(start, start + BATCH))
    return documents, found


def work(folder, documents, batches, on_step=None):
    """Continue from the newest checkpoint for some batches, with a checkpoint after each."""
    with Store.open(folder, on_step=on_step) as store:
        newest = store.newest()
        learned = learned_at(newest.position) if newest else 0
        engine = newest.restore() if newest else Engine(SETTINGS)
        for _ in range(batches):
            engine.add(documents.rows(learned, learned + BATCH))
            learned = min(ROWS, learned + BATCH)
            store.write(store.capture(engine, position_of(learned), WORDS, {"documents": learned}))


def verify(folder, undisturbed):
    """Assert that what is loaded is whole and of one moment; return documents and generation."""
    with Store.open(folder) as store:
        newest = store.newest()
        if newest is None:
            return 0, 0
        assert newest.skipped == ()
        learned = learned_at(newest.position)
        assert digest(newest.restore()) == undisturbed[learned]
        assert newest.about == {"documents": learned}
        assert newest.vocabulary == WORDS
        kinds = [path.name.split("-")[0] for path in folder.iterdir()]
        assert kinds.count("state") <= 2
        assert set(kinds) == {"index", "lock", "state"}, "nothing is left behind"
        return learned, newest.generation


def every_step(scratch):
    """Kill at every step of making a folder and two checkpoints, then continue."""
    documents, undisturbed = planted()
    seen, last = set(), 0

    def kill(step):
        return wait(fork(lambda: work(scratch / str(step), documents, 2, die_at(step))))

    for step, status in kill_at_steps(kill):
        folder, last = scratch / str(step), step
        learned, generation = verify(folder, undisturbed)
        assert learned == generation * BATCH
        seen.add(generation)
        if status == KILLED:
            # 3 steps to make the folder, 6 for each checkpoint, of which the fifth commits.
            assert generation == max(0, step - 3 + 2) // 6
        work(folder, documents, 1)
        assert verify(folder, undisturbed) == (learned + BATCH, generation + 1)
    assert seen == {0, 1, 2}
    return {"steps": last}


if __name__ == "__main__":
    load_kernels()
    serve({"every-step": every_step})
