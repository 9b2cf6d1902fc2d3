"""``streamlda infer``: topic proportions of documents."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Annotated

import click

from streamlda.cli import options
from streamlda.cli.options import command, flag, option, output
from streamlda.cli.run import serve
from streamlda.cli.shared import DOCUMENTS, allow_analyzer, check_lost, read_documents
from streamlda.container import whole_file
from streamlda.errors import ModelFileError
from streamlda.model.document_table import infer_documents
from streamlda.model.groups import Groups
from streamlda.model.topic_model import TopicModel
from streamlda.run.appended import WORDS, AppendedTable
from streamlda.run.proportions import (
    FORMATS,
    WRITERS,
    RowWriter,
    guess_format,
    spread,
    write_columns,
)
from streamlda.run.proportions import infer as infer_texts
from streamlda.settings.run_settings import SETTINGS, RunSettings
from streamlda.settings.setting import INFER
from streamlda.storage.snapshots import NamedModel, NewestModel
from streamlda.stream.event_time import UNITS
from streamlda.text.encoding import UNREADABLE

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
    kind = output_format or ("jsonl" if output == "-" else guess_format(output))
    if by is not None:
        records, rejects = _write_groups(newest.model, settings, by, output, kind)
    else:
        records, rejects = _write_rows(newest, settings, output, kind, append)
    lost, facts = rejects.total() / max(1, records), {"rejects": rejects.total()}
    check_lost(lost, settings, "the output is written all the same", records=records, **facts)


def _kind(by: str) -> str:
    return "class" if by == "class" else "time"


def _write_groups(
    model: TopicModel, settings: RunSettings, by: str, output: str, kind: str
) -> tuple[int, Counter[str]]:
    """Write topics by class or time; return the number of records, and rejects by reason."""
    from streamlda.report.documents import bin_times
    from streamlda.report.over_time import written

    groups, records, rejects = Groups(model.n_components), 0, Counter[str]()
    with nullcontext(sys.stdout.buffer) if output == "-" else whole_file(output) as file:
        for documents in read_documents(settings):
            theta, reasons, _ = infer_documents(model, documents.texts)
            keys = documents.classes if by == "class" else bin_times(documents.times, by)
            groups.add(keys, theta, reasons)
            documents.rejects[UNREADABLE] += reasons.count(UNREADABLE)
            records, rejects = records + len(documents.reasons), documents.rejects
        say = str if by == "class" else (lambda at: written(at, by))
        write_columns(file, kind, groups.columns(model, _kind(by), WORDS, say))
    return records, rejects


def _write_rows(
    newest: NamedModel, settings: RunSettings, output: str, kind: str, append: bool
) -> tuple[int, Counter[str]]:
    """Write a row for each record; return their number, and rejects by reason."""
    top, with_id = 2 if append else settings.infer.top, settings.source.id_field is not None
    shape = newest.model.n_components, top, with_id
    records, rejects = 0, Counter[str]()
    writer: RowWriter | AppendedTable
    with ExitStack() as opened:
        whole = nullcontext(sys.stdout.buffer) if output == "-" else whole_file(output)
        file = opened.enter_context(whole)
        if append:
            writer = AppendedTable(settings, newest.model, file)
            opened.callback(writer.close)
        else:
            writer = WRITERS[kind](file, *shape)
            opened.callback(writer.finish)
        cluster = None
        if settings.cluster.dask is not None:
            from streamlda.run.cluster import InferredFiles

            cluster = InferredFiles(settings, newest, top)
        for documents in read_documents(settings, cluster):
            found = cluster.found if cluster else infer_texts(newest, documents.texts, top)
            writer.write(documents.records, spread(found, documents.reasons))
            documents.rejects[UNREADABLE] += len(documents.texts) - len(found.readable)
            records, rejects = records + len(documents.reasons), documents.rejects
        if append:
            writer.finish()
    return records, rejects
