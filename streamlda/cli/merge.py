"""``streamlda merge``: join what several daemons have learned, or finished models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from streamlda.cli.options import max_distance_option, output_option, quiet_option
from streamlda.cli.shared import say, show_warnings, warn
from streamlda.cli.topics import counts_slots
from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from streamlda.storage.checkpoint import Checkpoint


@click.command(short_help="Join what several daemons have learned, or finished models.")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=click.Path())
@output_option("Model file to write.")
@click.option(
    "--state",
    type=click.Path(),
    help="File for the joined sums of daemons, as secret as the documents. [default: none]",
)
@max_distance_option
@quiet_option
@click.pass_context
def merge(
    context: click.Context,
    sources: tuple[str, ...],
    output: str,
    state: str | None,
    max_distance: float,
    quiet: bool,
) -> None:
    """Write one model of several: SOURCE... are folders of checkpoints, or model files.

    Folders: the daemons may be running; nothing in the folders is changed. They must have begun
    with one projection file (streamlda projection), have equal settings, and read disjoint
    partitions. The model is then that of one process over all documents; refined topics are as
    good, to a percent of perplexity. One folder gives the model of its daemon, and needs no
    projection file. Private states are refused: private daemons publish snapshots of their own.

    Model files: two or more, of disjoint documents and words of one kind. Topics nearer than
    --max-distance become one, weighted by their tokens; all others are kept. Private models are
    merged with private ones only: those of one ledger, of different record slots, keep its promise;
    those of several ledgers promise the sum of epsilons and of deltas, since a document may be in
    each.
    """
    for path in sources:
        Path(path).stat()  # Raises where there is nothing.
    files = [path for path in sources if Path(path).is_file()]
    if files:
        folders = [path for path in sources if Path(path).is_dir()]
        if folders or state is not None:
            raise click.UsageError(
                "model files must be merged without folders of checkpoints and without --state, "
                f"got files={len(files)} folders={len(folders)}; merge each kind separately"
            )
        _merge_models(sources, output, max_distance, quiet)
        return
    if context.get_parameter_source("max_distance") is not ParameterSource.DEFAULT:
        raise click.UsageError("--max-distance needs model files; folders have the same topics")
    _merge_folders(sources, output, state, quiet)


def _merge_models(paths: tuple[str, ...], output: str, max_distance: float, quiet: bool) -> None:
    from streamlda.model.merging import merged
    from streamlda.model.table import plural
    from streamlda.model.topic_model import load

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


def _merge_folders(folders: tuple[str, ...], output: str, state: str | None, quiet: bool) -> None:
    from streamlda.model.table import plural
    from streamlda.storage.merge import merge_checkpoints
    from streamlda.storage.state import save_state

    outputs = [output] if state is None else [output, state]
    for number, path in enumerate(outputs):
        check_output(path, outputs[:number])
        check_outside(path, folders)
    merged = merge_checkpoints(folders)
    for folder, checkpoint in zip(folders, merged.checkpoints, strict=True):
        warn_about_damage(folder, checkpoint)
    model = merged.engine.snapshot(merged.vocabulary, {"merged_states": len(folders)})
    if len(folders) > 1:
        # Each daemon has an interval of its own.
        model = replace(model, interval=None)
    if state is not None:
        save_state(state, merged.engine)
    model.save(output)
    say(
        quiet,
        f"{plural(model.documents_seen, 'document')} of {plural(len(folders), 'state')}, "
        f"{plural(model.tokens_seen, 'token')}",
        f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')}",
        *([] if state is None else [f"state: {state}"]),
        f"model: {output}",
    )
    show_warnings(model)


def check_outside(path: str, folders: tuple[str, ...]) -> None:
    """Raise if an output would lie in one of the folders, which belong to daemons."""
    for folder in folders:
        if Path(path).resolve().parent == Path(folder).resolve():
            raise click.UsageError(
                f"an output must not lie in a folder of checkpoints, got path={path!r}; "
                "choose another folder"
            )


def warn_about_damage(folder: str, checkpoint: Checkpoint) -> None:
    """Say that an older generation was taken, and why."""
    for problem in checkpoint.skipped:
        warn(f"the newest checkpoint is damaged, an older one was used: path={folder!r} {problem}")
