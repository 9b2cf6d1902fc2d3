"""``streamlda infer``: topic proportions of documents."""

import sys
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import click

from streamlda.cli import options, shared
from streamlda.cli.options import command, flag, output
from streamlda.cli.run import serve
from streamlda.cli.shared import DOCUMENTS, Documents, check_lost, read_documents
from streamlda.container import whole_file
from streamlda.model.document_table import UNREADABLE
from streamlda.run.proportions import FORMATS, AppendedTable, RowWriter, spread
from streamlda.run.proportions import infer as infer_texts
from streamlda.settings.setting import INFER
from streamlda.settings.table import SETTINGS, RunSettings
from streamlda.storage.snapshots import NamedModel
from streamlda.text.encoding import UNREADABLE as NO_WORDS

TASKS = {
    "Documents": (
        *("source.format", "source.encoding", "source.text_field", "source.id_field"),
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
CSV has the columns topic_0, topic_1, ..., with --top topic_1, proportion_1, topic_2, ...

With --kafka-topic and --output-topic it runs until SIGTERM or SIGINT. Each result and the position
after its document are written in one Kafka transaction: readers with isolation.level=read_committed
see one result for each document, even after a kill. Processes of one group share the partitions. A
newer model is used as soon as it appears. Records that cannot be used go to dead_letters.topic.
"""

OUTPUT = "File to write, whole: .csv, .parquet, or else JSON Lines; - is standard output."
Output = Annotated[str, output(OUTPUT, default="-")]
APPEND = "Write the columns of SOURCE, a CSV file or a workbook, and columns of its topics."


@command(reader=INFER, tasks=TASKS, names=NAMES, epilog=DETAILS)
def infer(
    model_file: options.ModelFile,
    output: Output,
    append: Annotated[bool, flag("--append", APPEND)],
    flags: options.Values,
) -> None:
    """Write the topic proportions of each document of SOURCE..., or of a Kafka topic.

    FILE is a model, or a folder of snapshots, of which the newest is used. Each record of SOURCE...
    has a row, in order: its number and location; its id, with --id-field; its known tokens; the K
    topic proportions; and, if it has none of its own but those of the prior, the reason. Exit code
    65: more than --most-lost of the records were rejected, or of the stored bytes lost to damage.
    """
    settings = flags.read()
    if append and (settings.infer.top or settings.cluster.dask):
        raise click.UsageError(
            "--append has columns of its own, and reads here: leave out --top and --dask"
        )
    if settings.source.kind == "kafka":
        if output != "-" or append:
            raise click.UsageError("--output and --append must be left out with --kafka-topic")
        from streamlda.service.inference import run

        shared.allow_analyzer(settings)
        serve(settings, partial(run, model_file))
        return
    newest = shared.find_newest(model_file)
    ending = Path(output).suffix.lower().removeprefix(".")
    kind = ending if ending in FORMATS else "jsonl"
    with nullcontext(sys.stdout.buffer) if output == "-" else whole_file(output) as file:
        last = _write_rows(newest, settings, file, "" if append else kind)
    check_lost(last.counts, last.stored_bytes, settings, "the output is written all the same")


def _write_rows(newest: NamedModel, settings: RunSettings, file: BinaryIO, kind: str) -> Documents:
    """Write a row for each record, or append columns; return the last documents."""
    model, top, cluster = newest.model, settings.infer.top, None
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
            documents.counts.rejects[NO_WORDS] += reasons.count(UNREADABLE)
    return documents
