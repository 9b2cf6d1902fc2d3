"""A process that reads a topic and stores what it read with its position, as one file.

``python -m tests.kafka.consumer BOOTSTRAP TOPIC STATE_FILE N_RECORDS`` goes on where the file says
and ends after N_RECORDS records, unless it is killed.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

from streamlda_connectors.kafka import KafkaSource


def main(bootstrap: str, topic: str, path: Path, n_records: int) -> None:
    source = KafkaSource(topic, bootstrap_servers=bootstrap, format="text")
    state = {"texts": 0, "blanks": 0, "sum": 0, "digest": "", "position": None}
    if path.exists():
        state = json.loads(path.read_text())
        source.seek(state["position"])
    while state["texts"] + state["blanks"] < n_records:
        batch = source.poll(7, 1.0)
        for text in batch.documents:
            state["sum"] += int(text)
            state["digest"] = hashlib.sha256((state["digest"] + text).encode()).hexdigest()
        state["texts"] += batch.n_documents
        state["blanks"] += batch.n_records - batch.n_documents
        state["position"] = dict(source.position())
        new = path.with_suffix(".new")
        new.write_text(json.dumps(state))
        os.replace(new, path)  # noqa: PTH105 - the atomic step that is tested
    source.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
