"""``streamlda infer``: topic proportions of documents."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack, nullcontext

import click

from streamlda.checks import require
from streamlda.cli.options import Given, SettingsCommand
from streamlda.cli.shared import DOCUMENTS, allow_analyzer, read_documents
from streamlda.container import whole_file
from streamlda.errors import InvalidDocumentsError, ModelFileError
from streamlda.model.document_table import infer_documents
from streamlda.model.groups import Groups
from streamlda.model.topic_model import TopicModel
from streamlda.run.appended import WORDS, AppendedTable
from streamlda.run.outputs import check_output
from streamlda.run.proportions import (
    WRITERS,
    RowWriter,
    guess_format,
    spread,
    whole_rows,
    write_columns,
)
from streamlda.run.proportions import infer as infer_texts
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.setting import INFER
from streamlda.storage.snapshots import NamedModel, NewestModel
from streamlda.stream.event_time import UNITS
from streamlda.text.encoding import UNREADABLE
from streamlda.utils.exit_codes import CONFIGURATION, DATA, exit_code

TASKS = {
    "Documents": (
        *("source.format", "source.encoding", "source.text_field", "source.id_field"),
        *("source.class_field", "source.time_field", "source.time_format"),
        *("infer.top", "source.most_lost"),
    ),
    "Kafka": ("kafka.bootstrap", "kafka.topic", "infer.topic"),
    "Cluster": ("cluster.dask",),
}

#: Settings of a topic in and a topic out.
TOPICS = (
    *("start", "protocol", "mechanism", "username", "password"),
    *("ca_file", "certificate_file", "key_file", "key_password"),
)
STREAM = (
    *(f"kafka.{key}" for key in TOPICS),
    *(f"registry.{key}" for key in ("url", "username", "password", "ca_file")),
    *("infer.group", "infer.disclose", "source.allow_gaps", "dead_letters.topic"),
    *("dead_letters.with_text", "log.format", "log.level"),
)

NAMES = (*DOCUMENTS, *STREAM, "cluster.dask", "cluster.shards")

DETAILS = """
CSV has the columns topic_0, topic_1, ..., with --top topic_1, proportion_1, topic_2, ... With --by
there is a row for each class, or bin of time, and each topic: its label, its share, which is the
mean of its proportions, and the documents of which it is the largest.

With --kafka-topic and --output-topic it runs until SIGTERM or SIGINT. Each result and the
position after its document are written in one Kafka transaction: readers with
isolation.level=read_committed see one result for each document, even after a kill. Processes
of one group share the partitions. A result is JSON, under the key of the document: topic,
partition and offset of the document, its id, the number of the snapshot and the digest of the
model file, tokens and topics. A newer model is used as soon as it appears. Brokers that are
away are waited for; records that cannot be used are counted, and go to dead_letters.topic.
"""


@click.command(
    cls=SettingsCommand,
    reader=INFER,
    tasks=TASKS,
    names=NAMES,
    epilog=DETAILS,
)
@click.argument("model_file", metavar="FILE", type=click.Path())
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    default="-",
    show_default=True,
    help="File to write, whole; - is standard output.",
)
@click.option(
    "--output-format",
    type=click.Choice(("jsonl", "csv", "parquet")),
    help="Format of the output. [default: by its ending, .csv or .parquet, else jsonl]",
)
@click.option(
    "--append",
    is_flag=True,
    help="Write the columns of SOURCE, a file of CSV or Parquet, and topic, label, words, "
    "proportion, second_topic, second_proportion and reason.",
)
@click.option(
    "--by",
    type=click.Choice(("class", *UNITS)),
    help="Write topics by --class-field or --time-field instead. [default: none]",
)
def infer(
    model_file: str,
    output: str,
    output_format: str | None,
    append: bool,
    by: str | None,
    given: Given,
) -> None:
    """Write the topic proportions of each document of SOURCE..., or of a Kafka topic.

    FILE is a model, or a folder of snapshots, of which the newest is used. There is a row for each
    record of SOURCE..., in order: its number and location; its id, with --id-field; tokens, those
    that the model knows; the reason why it has no topics of its own; and topics, the K proportions,
    or those of the prior without known tokens. Exit code 65: more than --most-lost of the records
    were rejected.
    """
    settings = given.read()
    if append and (output_format or settings.infer.top or settings.cluster.dask):
        raise click.UsageError(
            "--append has its own format and columns, and reads here: leave out "
            "--output-format, --top and --dask"
        )
    if by is not None and (append or settings.infer.top or settings.cluster.dask):
        raise click.UsageError(
            "--by has its own columns, and reads here: leave out --append, --top and --dask"
        )
    field = "class" if by == "class" else "time"
    if by is not None and settings[f"source.{field}_field"] is None:
        raise click.UsageError(f"--by {by} needs --{field}-field")
    if settings.source.kind != "kafka":
        _infer_files(model_file, output, output_format, settings, append, by)
        return
    if output != "-" or output_format or append or by:
        raise click.UsageError(
            "--output, --output-format, --append and --by must be left out with --kafka-topic"
        )
    _infer_topic(model_file, settings)


def _infer_files(
    path: str,
    output: str,
    output_format: str | None,
    settings: RunSettings,
    append: bool,
    by: str | None,
) -> None:
    if output != "-":
        check_output(output, [path, *settings.source.files])
    newest = NewestModel(path).find()
    if newest is None:
        raise ModelFileError(
            f"a folder must have a snapshot to infer with, got path={path!r}; name a model file"
        )
    if by is not None:
        kind = output_format or ("jsonl" if output == "-" else guess_format(output))
        records, rejects = _write_groups(newest.model, settings, by, output, kind)
    else:
        records, rejects = _write_rows(newest, settings, output, output_format, append)
    lost, most = rejects.total() / max(1, records), settings.source.most_lost
    require(
        lost <= most,
        f"at most {most:.4g} of the records may be rejected",
        lost=round(lost, 4),
        records=records,
        rejects=rejects.total(),
        remedy="the output is written all the same: repair the files, or raise source.most_lost",
        error=InvalidDocumentsError,
    )


def _write_groups(
    model: TopicModel, settings: RunSettings, by: str, output: str, kind: str
) -> tuple[int, Counter[str]]:
    """Write topics by class or time; return the number of records, and rejects by reason."""
    from streamlda.report.documents import bin_times
    from streamlda.report.over_time import written

    groups, records, rejects = Groups(model.n_components), 0, Counter[str]()
    with nullcontext(sys.stdout.buffer) if output == "-" else whole_file(output) as file:
        for documents in read_documents(settings, blanks=True):
            theta, reasons, _ = infer_documents(model, documents.texts)
            keys = documents.classes if by == "class" else bin_times(documents.times, by)
            groups.add(keys, theta, reasons)
            documents.rejects[UNREADABLE] += reasons.count(UNREADABLE)
            records, rejects = records + len(documents.reasons), documents.rejects
        name, say = ("class", str) if by == "class" else ("time", lambda at: written(at, by))
        write_columns(file, kind, groups.columns(model, name, WORDS, say))
    return records, rejects


def _write_rows(
    newest: NamedModel,
    settings: RunSettings,
    output: str,
    output_format: str | None,
    append: bool,
) -> tuple[int, Counter[str]]:
    """Write a row for each record; return their number, and rejects by reason."""
    top, with_id = 2 if append else settings.infer.top, settings.source.id_field is not None
    shape = newest.model.n_components, top, with_id
    records, rejects = 0, Counter[str]()
    writer: RowWriter | AppendedTable
    with ExitStack() as opened:
        if append:
            whole = nullcontext(sys.stdout.buffer) if output == "-" else whole_file(output)
            writer = AppendedTable(settings, newest.model, opened.enter_context(whole))
            opened.callback(writer.close)
        elif output == "-":
            writer = WRITERS[output_format or "jsonl"](sys.stdout.buffer, *shape)
            opened.callback(writer.finish)
        else:
            kind = output_format or guess_format(output)
            writer = opened.enter_context(whole_rows(output, kind, *shape))
        cluster = None
        if settings.cluster.dask is not None:
            from streamlda.run.cluster import InferredFiles

            cluster = InferredFiles(settings, newest, top)
        for documents in read_documents(settings, cluster, blanks=True):
            found = cluster.found if cluster else infer_texts(newest, documents.texts, top)
            writer.write(documents.records, spread(found, documents.reasons))
            documents.rejects[UNREADABLE] += len(documents.texts) - len(found.readable)
            records, rejects = records + len(documents.reasons), documents.rejects
        if append:
            writer.finish()
    return records, rejects


def _infer_topic(path: str, settings: RunSettings) -> None:
    from streamlda.service.inference import run
    from streamlda.service.logs import log_failure, start_logging
    from streamlda.service.signals import leave

    start_logging(settings.log.format, settings.log.level)
    allow_analyzer(settings)
    try:
        code = run(path, settings)
    except Exception as error:
        code = exit_code(error)
        if code in (CONFIGURATION, DATA) or isinstance(error, OSError):
            raise
        # A traceback of Python's own could quote a document.
        log_failure("crashed", error)
    leave(code)
