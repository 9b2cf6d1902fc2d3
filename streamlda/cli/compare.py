"""``streamlda compare``: which topics two models have in common, and what differs."""

from __future__ import annotations

import json
from typing import Any

import click

from streamlda.cli.options import json_option, max_distance_option, words_option
from streamlda.model.matching import compare_models
from streamlda.model.table import in_line, named_words, plural
from streamlda.model.topic_model import load
from streamlda.privacy.ledger.budget_table import printable


@click.command()
@click.argument("first_file", metavar="FIRST", type=click.Path())
@click.argument("second_file", metavar="SECOND", type=click.Path())
@words_option
@max_distance_option
@json_option
def compare(
    first_file: str, second_file: str, n_words: int, max_distance: float, as_json: bool
) -> None:
    """Show which topics the models FIRST and SECOND have in common, and what differs.

    Topics are paired so that the sum of distances is least. The distance is Hellinger's: 0 for
    equal topics, 1 for topics without a word in common. A plus marks words that are more probable
    in SECOND, a minus words that are less probable. Topics that only one model has come last.
    """
    paths = first_file, second_file
    models = load(first_file), load(second_file)
    found = compare_models(*models, max_distance=max_distance, names=paths).to_json()
    words = [[[word for word, _ in top] for top in model.top_words(n_words)] for model in models]
    if not as_json:
        listed = [
            [printable(named_words(*pair)) for pair in zip(model.names, own, strict=True)]
            for model, own in zip(models, words, strict=True)
        ]
        click.echo("\n".join(_table(found, listed)))
        return
    shares = [model.shares for model in models]
    for pair in found["matched"]:
        first, second = pair["first"], pair["second"]
        pair["prevalence"] = [shares[0][first], shares[1][second]]
        pair["words"] = [words[0][first], words[1][second]]
    for name, prevalence, top in zip(("only_first", "only_second"), shares, words, strict=True):
        found[name] = [
            {"topic": k, "prevalence": prevalence[k], "words": top[k]} for k in found[name]
        ]
    click.echo(json.dumps(found, ensure_ascii=False, indent=1))


def _table(found: dict[str, Any], words: list[list[str]]) -> list[str]:
    lines = [
        f"{plural(len(found['matched']), 'topic')} in both, {len(found['only_first'])} only in the "
        f"first, {len(found['only_second'])} only in the second",
        f"{plural(found['common_words'], 'word')} in both, {found['common_share']:.0%} of the "
        "tokens",
        "",
        "first second  distance   words",
    ]
    for pair in found["matched"]:
        row = f"{pair['first']:5d} {pair['second']:6d} {pair['distance']:9.2f}   "
        lines.append(row + words[1][pair["second"]])
        moved = [f"+{in_line([word])}" for word in pair["rose"]]
        moved += [f"-{in_line([word])}" for word in pair["fell"]]
        lines += [25 * " " + " ".join(moved)] * bool(moved)
    for name, place, top in zip(("only_first", "only_second"), (0, 6), words, strict=True):
        lines += [f"{place * ' '}{k:5d}{(20 - place) * ' '}{top[k]}" for k in found[name]]
    return lines
