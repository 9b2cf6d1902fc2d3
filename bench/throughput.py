"""Processor time of a document of a topic, part by part, and beside a bare client."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.daemon import gathered
from bench.daemon_tasks import TOKENS, TOPIC, Daemon, filled_topic, topical_values
from bench.kinds import Case, Figure, Json, Scenario, at_least, at_most

if TYPE_CHECKING:
    from bench.measure import Meter

PARTITIONS, COMPRESSION = 4, "lz4"
#: Of the daemons that share a topic.
MEMBERS, SHARED_PARTITIONS = 3, 6
#: From this many cores on, that many daemons must be faster than one.
CORES_OF_GROUP = 6
#: Most records of a poll, of the bare loops and of the daemon.
POLL_RECORDS, DAEMON_POLL_RECORDS = 1000, 4096
#: Name of what reads, in stored results.
CLIENT = "kafka-python"
#: Parts of a document in the order of its way.
PARTS = ("client", "JSON and records", "words", "counts", "learning", "the rest")


def bare_loop(bootstrap: str, n_records: int) -> None:
    """Read the topic and decode its JSON, and nothing else."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, metrics_enabled=False
    )
    parts = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    consumer.assign(parts)
    for part in parts:
        consumer.seek(part, 0)
    n_read = 0
    while n_read < n_records:
        for rows in consumer.poll(1000, max_records=POLL_RECORDS).values():
            n_read += len(rows)
            for row in rows:
                json.loads(row.value)
    consumer.close()


def client_alone(bootstrap: str, n_records: int) -> None:
    """Take the columns of records, as the connector does."""
    from streamlda_connectors.kafka.consumer import Client
    from streamlda_connectors.kafka.security import ClientSettings

    with closing(Client(ClientSettings(bootstrap, TOPIC))) as reading:
        reading.assign(dict.fromkeys(range(PARTITIONS), 0))
        n_read = 0
        while n_read < n_records:
            n_read += sum(len(run.records) for run in reading.poll(1.0, POLL_RECORDS))


def source_alone(bootstrap: str, n_records: int) -> None:
    """Take documents from the connector."""
    from streamlda_connectors.kafka import KafkaSource

    with closing(KafkaSource(TOPIC, bootstrap_servers=bootstrap)) as source:
        n_read = 0
        while n_read < n_records:
            n_read += source.poll(DAEMON_POLL_RECORDS).n_records


def cost(do: Callable[[], None]) -> dict[str, float]:
    """Return wall and processor seconds of the whole process, threads of a client included."""
    wall, cpu = time.perf_counter(), time.process_time()
    do()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def daemons_alone(
    bootstrap: str, parameters: Json, more: Mapping[str, str], members: int = 1
) -> dict[str, float]:
    """Return what daemons take between two records, as if for all; more than one share the topic.

    Behind the first, topics are annealed; at both, as many records wait that are read already.
    """
    n_records, behind, until = (parameters[name] for name in ("records", "behind", "until"))
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        settings = {
            "topics.count": parameters["n_components"],
            "topics.warmup_documents": parameters["warmup"],
            "vocabulary.hash_bits": parameters["hash_bits"],
            "snapshots.every": 10 * n_records,
            "checkpoint.folder": folder / "checkpoints",
            "output.folder": folder / "snapshots",
            **more,
        }
        daemons = []
        for number in range(members):
            own = folder / str(number)
            own.mkdir()
            daemons.append(opened.enter_context(Daemon(own, bootstrap, settings)))
        marks = [(0, time.perf_counter(), 0.0)]
        while marks[-1][0] < until:
            said = [daemon.status() for daemon in daemons]
            # The slots of a member are those of the partitions that it has at the time.
            slots = sum((one or {}).get("places") or 0 for one in said)
            cpu = sum(daemon.cpu_seconds() for daemon in daemons)
            marks.append((slots, time.perf_counter(), cpu))
            time.sleep(0.2)
    last = marks.pop()
    # All of a few records may be learned between two looks.
    first = next((mark for mark in marks if mark[0] >= behind), marks[-1])
    n, wall, cpu = (b - a for a, b in zip(first, last, strict=True))
    return {"wall": wall * n_records / n, "cpu": cpu * n_records / n}


def parts_of_learning(made: list[bytes], parameters: Json) -> dict[str, float]:
    """Return processor seconds a document on one thread, from texts to moved topics."""
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings
    from streamlda.stream.pipeline import Pipeline
    from streamlda.stream.source import RecordBatch
    from streamlda.text.encoding import count_tokens
    from streamlda.text.vocabulary import Vocabulary
    from streamlda.utils.threads import limit_threads

    vocabulary = Vocabulary.hashed(parameters["hash_bits"])
    settings = EngineSettings(
        n_components=parameters["n_components"], n_features=vocabulary.n_features
    )
    pipeline = Pipeline(vocabulary, lambda words, slot: Engine(settings))
    texts = [json.loads(value)["text"] for value in made]
    spent: Counter[str] = Counter()
    with limit_threads(1):
        while pipeline.records < parameters["until"]:
            start = pipeline.records % len(texts)
            taken = texts[start : start + DAEMON_POLL_RECORDS]
            times = [time.thread_time()]
            ids, offsets = vocabulary.token_ids(list(taken))
            times.append(time.thread_time())
            count_tokens(ids, offsets, vocabulary.n_features)
            times.append(time.thread_time())
            pipeline.add(RecordBatch(list(taken)))
            times.append(time.thread_time())
            if pipeline.records > parameters["behind"]:
                words, counts, whole = (b - a for a, b in pairwise(times))
                spent.update(
                    words=words, counts=counts, learning=whole - words - counts, n=len(taken)
                )
    return {name: spent[name] / spent["n"] for name in ("words", "counts", "learning")}


def kafka_throughput(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let bare loops, clients, sources and daemons read the same topic, in turns."""
    n_records = parameters["records"]
    made = topical_values(parameters["n_words"], parameters["n_components"], n_records, seed)
    found: dict[str, list[float]] = {}

    def note(what: str, seconds: dict[str, float]) -> None:
        for clock, value in seconds.items():
            found.setdefault(f"{what} {clock}", []).append(value / n_records)

    with filled_topic(made, n_records, PARTITIONS, COMPRESSION) as bootstrap:
        meter.started()
        with meter.timed():
            for _ in range(parameters["turns"]):
                for what, do in (
                    ("bare", bare_loop),
                    ("client", client_alone),
                    ("source", source_alone),
                ):
                    note(f"{what} {CLIENT}", cost(lambda read=do: read(bootstrap, n_records)))
                note(f"daemon {CLIENT}", daemons_alone(bootstrap, parameters, {}))
                for part, seconds in parts_of_learning(made, parameters).items():
                    found.setdefault(part, []).append(seconds)
    return {"documents": n_records, **found}


def kafka_group(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Let one daemon, and several that share the partitions, read the same topic, in turns."""
    n_records = parameters["records"]
    made = topical_values(parameters["n_words"], parameters["n_components"], n_records, seed)
    found: dict[str, list[float]] = {}
    with filled_topic(made, n_records, SHARED_PARTITIONS, COMPRESSION) as bootstrap:
        meter.started()
        with meter.timed():
            for turn in range(parameters["turns"]):
                shared = {"kafka.partitions": "group", "kafka.group": f"turn-{turn}"}
                turns: list[tuple[str, int, dict[str, str]]]
                turns = [("one", 1, {}), ("group", MEMBERS, shared)]
                for what, members, more in turns:
                    taken = daemons_alone(bootstrap, parameters, more, members)
                    for clock, value in taken.items():
                        found.setdefault(f"{what} {clock}", []).append(value / n_records)
    return {"documents": n_records, **found}


THROUGHPUT_TASKS = (kafka_throughput, kafka_group)

LABEL = "topics"


def parameters_of(quick: bool) -> Json:
    # Each partition of a group keeps a warm-up before its daemons begin.
    few = {"records": 8000, "behind": 2000, "until": 7000, "turns": 1, "warmup": 500}
    few |= {"n_words": 2000, "n_components": 5, "hash_bits": 11}
    full = {"records": 400_000, "behind": 130_000, "until": 330_000, "turns": 3, "warmup": 20_000}
    full |= {"n_words": 50_000, "n_components": 20, "hash_bits": 14}
    return few if quick else full


def cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [Case(LABEL, "kafka_throughput", parameters_of(quick))]


def group_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    return [Case(LABEL, "kafka_group", parameters_of(quick))]


def seconds(result: Json, what: str) -> float:
    return median(gathered(result, LABEL, what))


def figures(result: Json) -> list[Figure]:
    bare, daemon, bare_wall, wall = (
        gathered(result, LABEL, f"{what} {CLIENT} {clock}")
        for clock in ("cpu", "wall")
        for what in ("bare", "daemon")
    )
    return [
        at_least(
            f"documents of {TOKENS} tokens a processor second, daemon",
            *(1 / median(daemon), 25_000, "{:,.0f}"),
        ),
        at_least(
            "documents/s, daemon over a bare loop",
            *(median(a / b for a, b in zip(bare_wall, wall, strict=True)), 0.6, "{:.2f}"),
        ),
        Figure("documents a processor second, bare loop", f"{1 / median(bare):,.0f}"),
        Figure(
            "the daemon's over these",
            f"{median(a / b for a, b in zip(bare, daemon, strict=True)):.2f}",
        ),
    ]


def group_figures(result: Json) -> list[Figure]:
    one, group, one_wall, group_wall = (
        gathered(result, LABEL, f"{what} {clock}")
        for clock in ("cpu", "wall")
        for what in ("one", "group")
    )
    named = f"{MEMBERS} daemons on {SHARED_PARTITIONS} partitions over one"
    dearer = median(b / a for a, b in zip(one, group, strict=True))
    faster = median(a / b for a, b in zip(one_wall, group_wall, strict=True))
    rate = at_least(f"documents/s, {named}", faster, 2.2, "{:.2f}")
    if result["machine"]["cores"] < CORES_OF_GROUP:
        rate = rate._replace(target="-", met=None)
    return [
        at_most(f"processor seconds a document, {named}", dearer, 1.15, "{:.3f}"),
        rate,
        Figure("documents a processor second, one daemon", f"{1 / median(one):,.0f}"),
    ]


def parts(result: Json) -> list[float]:
    """Return seconds of processor time of a document, part by part."""
    alone, source, daemon = (
        seconds(result, f"{what} {CLIENT} cpu") for what in ("client", "source", "daemon")
    )
    learning = [seconds(result, part) for part in ("words", "counts", "learning")]
    return [alone, source - alone, *learning, daemon - source - sum(learning)]


def details(result: Json) -> str:
    """Return where the processor time of a document goes."""
    found = parts(result)
    lines = ["| microseconds a document | |", "| --- | ---: |"]
    lines += [f"| {name} | {1e6 * value:.1f} |" for name, value in zip(PARTS, found, strict=True)]
    return "\n".join([*lines, f"| the daemon | {1e6 * sum(found):.1f} |"])


THROUGHPUT = [
    Scenario(
        "kafka-throughput",
        "What does a document from a real broker cost in processor time, part by part?",
        1,
        cases,
        figures,
        details=details,
    ),
    Scenario(
        "kafka-group",
        "What do daemons that share a topic take, beside one that reads all of it?",
        1,
        group_cases,
        group_figures,
    ),
]
