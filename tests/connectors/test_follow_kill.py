"""A reader that is killed at random while a writer appends and rotates loses and doubles nothing.

Both are processes of their own. The reader stores what it read together with the position, in one
line of a file, as a daemon does in one transaction; a torn last line was not stored.
"""

import json
import os
import random
import subprocess
import sys
from time import monotonic, sleep

import pytest

from streamlda_connectors.follow import FollowSource

KILLS = 6
PATIENCE_SECONDS = 60.0

READER = """
import json, sys
from pathlib import Path
from streamlda_connectors.follow import FollowSource

path, stored = sys.argv[1], Path(sys.argv[2])
source = FollowSource(path)
source.seek(json.loads(stored.read_text().splitlines()[-1])["position"])
print("ready", flush=True)
with stored.open("a") as file:
    while True:
        poll = source.poll(int(sys.argv[3]), 0.1)
        assert not poll.rejects
        if poll.texts:
            row = {"texts": poll.documents, "position": dict(source.position())}
            # In two writes, so that a kill can tear the line.
            row = json.dumps(row) + chr(10)
            for half in (row[:len(row) // 2], row[len(row) // 2:]):
                file.write(half)
                file.flush()
"""

WRITER = """
import json, os, random, shutil, sys
from pathlib import Path
from time import sleep

path, way, draw = Path(sys.argv[1]), sys.argv[2], random.Random(int(sys.argv[3]))
kept = lambda i: path.with_name(f"{path.name}.{i}")
number = rotated = 0
stop = path.with_name(".stop")
while not stop.exists():
    with path.open("ab", buffering=0) as file:
        for _ in range(draw.randrange(1, 60)):
            line = json.dumps({"text": f"{number}", "filler": "x" * draw.randrange(300)}).encode()
            number += 1
            cut = draw.randrange(len(line))
            file.write(line[:cut])
            if draw.random() < 0.2:
                sleep(draw.random() * 0.02)
            file.write(line[cut:] + b"\\n")
    if draw.random() < 0.3:
        for i in range(rotated, 0, -1):
            kept(i).rename(kept(i + 1))
        rotated += 1
        if way == "rename":
            path.rename(kept(1))
            sleep(draw.random() * 0.3)
        else:
            shutil.copy(path, kept(1))
            sleep(draw.random() * 0.3)
            os.truncate(path, 0)
print(number)
"""


def read_back(stored):
    """Return what was stored, without a torn last line, which is taken away as a database would."""
    data = stored.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    os.truncate(stored, len(whole))
    return texts_of(whole)


def texts_of(data):
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return [text for line in lines for text in json.loads(line)["texts"]]


@pytest.mark.parametrize("way", ["rename", "copy"])
@pytest.mark.parametrize("whole", [True, False], ids=["file", "directory"])
def test_killed_reader_has_every_line_once(tmp_path, way, whole):
    seed = 2 * (way == "copy") + whole
    draw = random.Random(seed)
    folder, stored = tmp_path / "logs", tmp_path / "stored"
    folder.mkdir()
    log = folder / "app.jsonl"
    log.touch()
    path = log if whole else folder

    def start(code, *arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    # The first position is stored before anything is rotated away.
    first = FollowSource(path)
    stored.write_text(json.dumps({"texts": [], "position": dict(first.position())}) + "\n")
    first.close()
    writer = start(WRITER, log, way, seed)
    processes = [writer]
    try:
        for kill in range(KILLS):
            reader = start(READER, path, stored, draw.choice([1, 7, 1000]))
            processes.append(reader)
            if kill % 5:
                reader.stdout.readline()
            sleep(draw.random() * 0.8)
            died = reader.poll()
            reader.kill()
            _, errors = reader.communicate(timeout=PATIENCE_SECONDS)
            assert died is None, errors.decode()
            before = read_back(stored)
            # Now and then the files are rotated while nobody looks.
            sleep(draw.choice([0.0, 0.0, 1.0]))
        (folder / ".stop").touch()
        written = [str(i) for i in range(int(writer.communicate(timeout=PATIENCE_SECONDS)[0]))]
        reader = start(READER, path, stored, 1000)
        processes.append(reader)
        end = monotonic() + PATIENCE_SECONDS
        while len(texts_of(stored.read_bytes())) < len(written) and monotonic() < end:
            assert reader.poll() is None, reader.communicate()[1].decode()
            sleep(0.1)
        sleep(0.5)
        reader.kill()
        reader.communicate(timeout=PATIENCE_SECONDS)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert sorted(read_back(stored), key=int) == written
    assert len(written) > 100
    assert before, "the killed readers read nothing"
    assert len(list(folder.iterdir())) > 3
