"""Checkpoints that are killed: run by tests as ``python -m tests.storage.checkpoint_crash``.

This process forks workers and kills them. All documents stay in the warm-up: no time is lost with
topics.
"""

import hashlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.kernels import load_kernels
from streamlda.simulate import PlantedLDA
from streamlda.storage.store import Store
from streamlda.text.vocabulary import Vocabulary

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
    return hashlib.blake2b(content + repr(values).encode()).hexdigest()


def undisturbed_run(documents):
    """Return the digest of the state after each number of documents, of a run nobody killed."""
    engine, found = Engine(SETTINGS), {}
    for start in range(0, ROWS + 1, BATCH):
        found[start] = digest(engine)
        engine.add(documents.rows(start, start + BATCH))
    return found


def work(folder, documents, batches, on_step=None):
    """Go on from the newest checkpoint for some batches, with a checkpoint after each."""
    with Store.open(folder, on_step=on_step) as store:
        newest = store.newest()
        learned = learned_at(newest.position) if newest else 0
        engine = newest.restore() if newest else Engine(SETTINGS)
        for _ in range(batches):
            engine.add(documents.rows(learned, learned + BATCH))
            learned = min(ROWS, learned + BATCH)
            store.write(store.capture(engine, position_of(learned), WORDS, {"documents": learned}))


def fork(task):
    child = os.fork()
    if child == 0:
        try:
            task()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return child


def wait(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status != 1, "a worker failed; its traceback is above"
    return status


def die_at(step):
    steps = iter(range(step + 1))

    def on_step(name):
        if next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


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
        assert set(kinds) == {"index", "lock", "state", "words"}, "nothing is left behind"
        assert kinds.count("words") == kinds.count("state")
        return learned, newest.generation


def every_step(tmp_path, documents, undisturbed):
    """Kill at every step of making a folder and two checkpoints, then go on."""
    status, step, seen = -signal.SIGKILL, 0, set()
    while status == -signal.SIGKILL:
        folder = tmp_path / str(step)
        status = wait(fork(lambda f=folder, s=step: work(f, documents, 2, die_at(s))))
        learned, generation = verify(folder, undisturbed)
        assert learned == generation * BATCH
        seen.add(generation)
        if status:
            # 3 steps to make the folder, 7 for each checkpoint, of which the sixth commits.
            assert generation == max(0, step - 3 + 2) // 7
        work(folder, documents, 1)
        assert verify(folder, undisturbed) == (learned + BATCH, generation + 1)
        step += 1
    assert status == 0
    assert seen == {0, 1, 2}
    assert step - 1 == 3 + 2 * 7


def any_moment(tmp_path, documents, undisturbed):
    """Kill at random moments; one folder lives through all crashes."""
    rng = np.random.default_rng(5)
    before = (0, 0)
    for _ in range(30):
        reader, writer = os.pipe()
        child = fork(lambda w=writer: work(tmp_path, documents, 1000, lambda _: os.write(w, b".")))
        os.close(writer)
        # Of its own progress, so that a slow machine kills in as many places as a fast one.
        steps = int(rng.integers(1, 40))
        while steps:
            done = os.read(reader, steps)
            assert done, "a worker ended; its traceback is above"
            steps -= len(done)
        time.sleep(rng.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        assert wait(child) == -signal.SIGKILL
        os.close(reader)
        after = verify(tmp_path, undisturbed)
        assert after >= before
        before = after
    assert before[1] > 5


if __name__ == "__main__":
    load_kernels()
    scratch = Path(sys.argv[2])
    made = PlantedLDA(3, 30, seed=4, topic_concentration=0.1).documents(ROWS)
    {"every_step": every_step, "any_moment": any_moment}[sys.argv[1]](
        scratch, made, undisturbed_run(made)
    )
