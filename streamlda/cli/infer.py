"""``streamlda infer``: topic proportions of documents."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import click

from streamlda.cli import options
from streamlda.cli.options import command, flag, option, output
from streamlda.cli.run import serve
from streamlda.cli.shared import DOCUMENTS, allow_analyzer, check_lost, read_documents
from streamlda.container import whole_file
from streamlda.errors import ModelFileError
from streamlda.model.document_table import UNREADABLE, infer_documents
from streamlda.model.groups import Groups
from streamlda.model.topic_model import TopicModel
from streamlda.run.proportions import (
    FORMATS,
    WORDS,
    AppendedTable,
    RowWriter,
    TableWriter,
    spread,
)
from streamlda.run.proportions import infer as infer_texts
from streamlda.settings.run_settings import SETTINGS, RunSettings
from streamlda.settings.setting import INFER
from streamlda.storage.snapshots import NamedModel, NewestModel
from streamlda.stream.event_time import UNITS
from streamlda.text.encoding import UNREADABLE as NO_WORDS

TASKS = {
    "Documents": (
        *("source.format", "source.encoding", "source.text_field", "source.id_field"),
        *("source.class_field", "source.time_field", "source.time_format"),
        *("infer.top", "source.most_lost"),
    ),
    "Kafka": ("kafka.bootstrap", "kafka.topic", "infer.topic"),
    "Cluster": ("cluster.dask",),
}

#: Settings of a topic in and a topic out, and of a cluster, by their sections.
SECTIONS = ("kafka", "registry", "infer", "log", "cluster")
NAMES = (
    *(name for name, setting in SETTINGS.items() if setting.section in SECTIONS),
    *(*DOCUMENTS, "source.allow_gaps", "dead_letters.topic"),
)

DETAILS = """
CSV has the columns topic_0, topic_1, ..., with --top topic_1, proportion_1, topic_2, ... With --by
there is a row for each class, or bin of time, and each topic: its label, its share, which is the
mean of its proportions, and the documents of which it is the largest.

With --kafka-topic and --output-topic it runs until SIGTERM or SIGINT. Each result and the position
after its document are written in one Kafka transaction: readers with isolation.level=read_committed
see one result for each document, even after a kill. Processes of one group share the partitions. A
newer model is used as soon as it appears. Records that cannot be used go to dead_letters.topic.
"""


Output = Annotated[str, output("File to write, whole; - is standard output.", default="-")]
FORMAT = "Format of the output. [default: by its ending, .csv or .parquet, else jsonl]"
Format = Annotated[str | None, option("--output-format", FORMAT, type=click.Choice(FORMATS))]
APPEND = "Write the columns of SOURCE, a file of CSV or Parquet, and columns of its topics."
BY = "Write topics by --class-field or --time-field instead."
By = Annotated[str | None, option("--by", BY, type=click.Choice(("class", *UNITS)))]


@command(reader=INFER, tasks=TASKS, names=NAMES, epilog=DETAILS)
def infer(
    model_file: options.ModelFile,
    output: Output,
    output_format: Format,
    append: Annotated[bool, flag("--append", APPEND)],
    by: By,
    given: options.Given,
) -> None:
    """Write the topic proportions of each document of SOURCE..., or of a Kafka topic.

    FILE is a model, or a folder of snapshots, of which the newest is used. There is a row for each
    record of SOURCE..., in order: its number and location; its id, with --id-field; tokens, those
    that the model knows; the reason why it has no topics of its own; and topics, the K proportions,
    or those of the prior without known tokens. Exit code 65: more than --most-lost of the records
    were rejected.
    """
    settings = given.read()
    own, clashes = append or by, settings.infer.top or settings.cluster.dask
    if (own and clashes) or (append and (by or output_format)):
        raise click.UsageError(
            "--append and --by have columns of their own, and read here: leave out --top, --dask, "
            "and one of both; --append has the format of SOURCE: leave out --output-format"
        )
    if by is not None and settings[f"source.{_kind(by)}_field"] is None:
        raise click.UsageError(f"--by {by} needs --{_kind(by)}-field")
    if settings.source.kind == "kafka":
        if output != "-" or output_format or own:
            raise click.UsageError(
                "--output, --output-format, --append and --by must be left out with --kafka-topic"
            )
        from streamlda.service.inference import run

        allow_analyzer(settings)
        serve(settings, partial(run, model_file))
        return
    newest = NewestModel(model_file).find()
    if newest is None:
        raise ModelFileError(
            f"a folder must have a snapshot to infer with, got path={model_file!r}; name a model "
            "file"
        )
    ending = output_format or Path(output).suffix.lower().removeprefix(".")
    kind = ending if ending in FORMATS else "jsonl"
    with nullcontext(sys.stdout.buffer) if output == "-" else whole_file(output) as file:
        if by is not None:
            records, rejects = _write_groups(newest.model, settings, by, file, kind)
        else:
            records, rejects = _write_rows(newest, settings, file, "" if append else kind)
    lost, facts = rejects.total() / max(1, records), {"rejects": rejects.total()}
    check_lost(lost, settings, "the output is written all the same", records=records, **facts)


def _kind(by: str) -> str:
    return "class" if by == "class" else "time"


def _write_groups(
    model: TopicModel, settings: RunSettings, by: str, file: BinaryIO, kind: str
) -> tuple[int, Counter[str]]:
    """Write topics by class or time; return the number of records, and rejects by reason."""
    from streamlda.report.documents import bin_times
    from streamlda.report.over_time import written

    groups, records, rejects = Groups(model.n_components), 0, Counter[str]()
    for documents in read_documents(settings):
        theta, reasons, _ = infer_documents(model, documents.texts)
        keys = documents.classes if by == "class" else bin_times(documents.times, by)
        groups.add(keys, theta, reasons)
        documents.rejects[NO_WORDS] += reasons.count(UNREADABLE)
        records, rejects = records + len(documents.reasons), documents.rejects
    say = str if by == "class" else (lambda at: written(at, by))
    columns = groups.columns(model, _kind(by), WORDS, say)
    with closing(TableWriter(file, kind, list(columns))) as writer:
        writer.write(zip(*columns.values(), strict=True))
    return records, rejects


def _write_rows(
    newest: NamedModel, settings: RunSettings, file: BinaryIO, kind: str
) -> tuple[int, Counter[str]]:
    """Write a row for each record, or append columns; return their number and the rejects."""
    model, top, cluster = newest.model, settings.infer.top, None
    records, rejects = 0, Counter[str]()
    if settings.cluster.dask is not None:
        from streamlda.run.cluster import InferredFiles

        cluster = InferredFiles(settings, newest, top)
    with_id = settings.source.id_field is not None
    writer: RowWriter | AppendedTable = (
        RowWriter(file, kind, model.n_components, top, with_id)
        if kind
        else AppendedTable(settings, model, file)
    )
    with closing(writer):
        for documents in read_documents(settings, cluster):
            if isinstance(writer, AppendedTable):
                reasons = writer.add(documents.texts, documents.reasons)
            else:
                found = cluster.found if cluster else infer_texts(newest, documents.texts, top)
                reasons = writer.add(documents.records, spread(found, documents.reasons))
            documents.rejects[NO_WORDS] += reasons.count(UNREADABLE)
            records, rejects = records + len(documents.reasons), documents.rejects
    return records, rejects
