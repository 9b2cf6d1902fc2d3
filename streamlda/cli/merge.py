"""``streamlda merge`` and ``projection``: join what several daemons have learned, or models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from click.core import ParameterSource

from streamlda.cli.options import max_distance_option, output_option, quiet_option
from streamlda.cli.shared import say, show_warnings, warn
from streamlda.cli.topics import counts_slots
from streamlda.model.merging import merged
from streamlda.model.table import plural
from streamlda.model.topic_model import load
from streamlda.refinement.schedule import stream_settings
from streamlda.refinement.shared_start import SETTLED_STEPS, SharedStart
from streamlda.run.outputs import check_output
from streamlda.storage.checkpoint import Checkpoint
from streamlda.storage.merge import merge_checkpoints, read_newest_engine, save_projection


@click.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path())
@output_option("Model file to write.")
@max_distance_option
@quiet_option
@click.pass_context
def merge(
    context: click.Context,
    sources: tuple[str, ...],
    output: str,
    max_distance: float,
    quiet: bool,
) -> None:
    """Write one model of several: SOURCE... are folders of checkpoints, or model files.

    Folders: the daemons may be running; nothing in the folders is changed. They must have begun
    with one projection file (streamlda projection), have equal settings, and read disjoint
    partitions. The model is then that of one process over all documents. One folder gives the model
    of its daemon. Private states are refused: private daemons publish snapshots of their own.

    Model files: two or more, of disjoint documents and words of one kind. Topics nearer than
    --max-distance become one, weighted by their tokens; all others are kept. Private models are
    merged with private ones only: those of one ledger, of different record slots, keep its promise;
    those of several ledgers promise the sum of epsilons and of deltas.
    """
    for path in sources:
        Path(path).stat()  # Raises where there is nothing.
    files = [path for path in sources if Path(path).is_file()]
    n_folders = len(sources) - len(files)
    if files and n_folders:
        raise click.UsageError(
            "model files must be merged without folders of checkpoints, "
            f"got files={len(files)} folders={n_folders}; merge each kind separately"
        )
    if files:
        _merge_models(sources, output, max_distance, quiet)
        return
    if context.get_parameter_source("max_distance") is not ParameterSource.DEFAULT:
        raise click.UsageError("--max-distance needs model files; folders have the same topics")
    _merge_folders(sources, output, quiet)


def _merge_models(paths: tuple[str, ...], output: str, max_distance: float, quiet: bool) -> None:
    check_output(output, paths)
    models = [load(path) for path in paths]
    model = merged(models, max_distance=max_distance, names=paths)
    model.save(output)
    counted = "record slot" if counts_slots(model) else "document"
    before = sum(each.n_components for each in models)
    say(
        quiet,
        f"{plural(model.documents_seen, counted)} of {plural(len(paths), 'model')}",
        f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')}, "
        f"of {before} before",
        f"model: {output}",
    )
    show_warnings(model)


def _merge_folders(folders: tuple[str, ...], output: str, quiet: bool) -> None:
    check_output(output)
    _check_outside(output, folders)
    joined = merge_checkpoints(folders)
    for folder, checkpoint in zip(folders, joined.checkpoints, strict=True):
        _warn_about_damage(folder, checkpoint)
    model = joined.engine.snapshot(joined.vocabulary, {"merged_states": len(folders)})
    if len(folders) > 1:
        # Each daemon has an interval of its own.
        model = replace(model, interval=None)
    model.save(output)
    say(
        quiet,
        f"{plural(model.documents_seen, 'document')} of {plural(len(folders), 'state')}, "
        f"{plural(model.tokens_seen, 'token')}",
        f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')}",
        f"model: {output}",
    )
    show_warnings(model)


@click.command()
@click.argument("folder", metavar="CHECKPOINT_FOLDER", type=click.Path())
@output_option("Projection file to write.")
@click.option(
    "--renew",
    is_flag=True,
    help="Make a better projection from a daemon that already shares one, for a new start of all.",
)
@quiet_option
def projection(folder: str, output: str, renew: bool, quiet: bool) -> None:
    """Write a file with the words of the daemon of CHECKPOINT_FOLDER, and its start.

    Daemons that begin with this file (topics.projection_file), each with a new folder of
    checkpoints, can be joined by streamlda merge. If the daemon refines its topics, the file has
    these topics, and all others refine them further: let it read 100,000 documents first. If it
    runs with topics.refine false, some ten thousand documents are enough. If it began with such a
    file, the same start is written, so that others can join.

    Only its owner can read the file: it reveals how often words occur.
    """
    check_output(output)
    _check_outside(output, (folder,))
    checkpoint, engine = read_newest_engine(folder)
    _warn_about_damage(folder, checkpoint)
    made = save_projection(output, engine, checkpoint.vocabulary, renew=renew)
    words = plural(made.vocabulary.n_features, "word")
    if isinstance(made.beginning, SharedStart):
        if not engine.settled:
            steps = stream_settings(engine.settings.warmup_documents)
            warn(
                "shared topics should be of about "
                f"{SETTLED_STEPS * steps.batch_documents:,} documents, got "
                f"documents_seen={engine.documents_seen}; let the daemon read more, and make the "
                "file again"
            )
        topics = plural(len(made.beginning.stepwise.alpha), "refined topic")
        what = f"start {made.digest}: {topics}, {words}"
    else:
        what = f"projection {made.digest}: {words}, {plural(made.beginning.shape[1], 'column')}"
    origin = "shared" if engine.beginning is not None and not renew else "made"
    say(
        quiet,
        f"{what}, {origin} by an engine of {plural(engine.documents_seen, 'document')}",
        f"projection file: {output}",
    )


def _check_outside(path: str, folders: tuple[str, ...]) -> None:
    """Raise if an output would lie in one of the folders, which belong to daemons."""
    if Path(path).resolve().parent in [Path(folder).resolve() for folder in folders]:
        raise click.UsageError(
            f"an output must not lie in a folder of checkpoints, got path={path!r}; choose another "
            "folder"
        )


def _warn_about_damage(folder: str, checkpoint: Checkpoint) -> None:
    """Say that an older generation was taken, and why."""
    for problem in checkpoint.skipped:
        warn(f"the newest checkpoint is damaged, an older one was used: path={folder!r} {problem}")
