"""Runs that make all releases that their files suffice for, and the files."""

import csv
import json
import random
from contextlib import ExitStack, closing
from pathlib import Path

from streamlda.run.opening import open_ledger, open_pipeline
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.service.daemon_process import private_settings, texts

#: Records of a window, and of a file that is one window and some.
WINDOW, RECORDS = 300, 400
TEXTS, OTHERS, MANY = texts(RECORDS), texts(1000, seed=2), texts(5000, seed=4)
SHUFFLED = random.Random(3).sample(TEXTS, RECORDS)


def jsonl(path, documents, field="text"):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({field: text}) + "\n" for text in documents), "utf-8")
    return path


def settings_at(folder, sources, **flags):
    more = {"snapshots.every": WINDOW, "source.files": [str(source) for source in sources]}
    given = private_settings(folder, "", **{**more, **flags})
    del given["source.stream"]
    return load_settings(environment={}, flags={**given, **flags})


def opened_ledger(settings, opened):
    output = opened.enter_context(Store.open(private=True))
    return open_ledger(settings, opened, output, print)


def release(folder, *sources, store=False, most=99, warn=print, between=lambda: None, **flags):
    """Make all releases of a run that its files suffice for; return the documents of each.

    `between` is called when files were counted, before they are read.
    """
    settings = settings_at(folder, sources, **flags)
    with ExitStack() as opened:
        ledger = opened_ledger(settings, opened)
        before = ledger.generation
        kept = opened.enter_context(Store.open(folder / "kept")) if store else None
        run = open_pipeline(settings, kept, ledger, warn=warn)
        between()
        source = opened.enter_context(closing(run.open_source(settings)))
        pipeline, ended = run.pipeline, False
        while not ended and ledger.generation < before + most:
            if pipeline.learner.private.least_missing > run.census.slots - pipeline.records:
                break
            batch = source.poll(min(pipeline.due, 97))
            pipeline.add(batch)
            ended = batch.exhausted
            if pipeline.due == 0:
                pipeline.release()
        shots = ledger.report()["snapshots"][before:]
    return [[tuple(part) for part in shot["documents"]] for shot in shots]


def ranges(releases):
    """Return the documents of releases in a row: of each origin, from where to where."""
    found = {}
    for documents in releases:
        for origin, start, stop in documents:
            name = Path(origin).name
            first, last = found.get(name, (start, start))
            assert start == last, "ranges leave nothing out"
            found[name] = (first, stop)
    return found


def as_csv(folder):
    with (folder / "a.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["number", "text"], *enumerate(TEXTS)])
    return [folder / "a.csv"]
