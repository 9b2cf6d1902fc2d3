"""The first screens of a report: its figures, and a card for each topic."""

from __future__ import annotations

from collections.abc import Sequence

from streamlda.report.charts import bar, sparkline
from streamlda.report.facts import Facts, Topic, Word
from streamlda.report.markup import Markup, element, joined
from streamlda.report.parts import counts_places, link, percent
from streamlda.report.promise import bears_out

#: A movement that is worth a colour, as on the page of the daemon.
FAR = 0.2


#: What is wrong with a topic, shortly and at length.
REASONS = {
    "background": (
        "near the background",
        "It says nearly what all other topics say together. Too many topics were asked for, or "
        "words that are in every document should be left out.",
    ),
    "flat": (
        "flat",
        "All words are about as probable: there is nothing to name it by.",
    ),
    "noise": (
        "not above noise",
        "The documents do not set it apart from chance. More documents, or fewer topics, would.",
    ),
    "hidden": (
        "hidden by privacy noise",
        "More than half of it is the background, because the noise of privacy hid the rest.",
    ),
}


def tiles(facts: Facts) -> Markup:
    """Return the figures of the first screen."""
    model, found = facts.newest, facts.suggestion
    least = "at least " if found.basis == "all" else ""
    suggested = "the model does not say how many there should be"
    if found.n_components is not None:
        suggested = f"{least}{found.n_components} suggested"
    if found.basis == "hidden":
        suggested = f"of {model.diagnostics['topics_asked']:,} asked for"
    kind = "words without names" if model.vocabulary is None else model.vocabulary.kind
    kind = kind.replace("learned", "learned from the documents")
    flagged = sum(1 for topic in facts.topics if topic.reasons or topic.repeats)
    seen, unit = model.documents_seen, "Places" if counts_places(model) else "Documents"
    tokens = f"{model.tokens_seen:,} tokens" if model.tokens_seen else ""
    note = "the number of documents is private" if counts_places(model) else tokens
    is_private = bears_out(model.privacy)
    privacy = f"ε {float(model.privacy['epsilon']):g}" if is_private else "none"
    promise = f"δ {float(model.privacy['delta']):g}" if is_private else "nothing is promised"
    shown = [
        ("Topics", f"{model.n_components:,}", suggested),
        (unit, f"{seen:,}", note),
        ("Vocabulary", f"{model.n_features:,}", kind),
        ("Topics in a document", _mixing(model.alpha_0), f"sum of alpha {model.alpha_0:.3g}"),
        ("To look at twice", f"{flagged:,}", "topics that repeat or say little"),
        ("Privacy", privacy, promise),
    ]
    return element(
        "div",
        *(
            element(
                "div",
                element("h3", name),
                element("p", figure, class_="figure"),
                element("p", told, class_="quiet"),
                class_="tile",
            )
            for name, figure, told in shown
        ),
        class_="tiles",
    )


def _mixing(alpha_0: float) -> str:
    if alpha_0 < 0.3:
        return "mostly one"
    return "a few" if alpha_0 < 5 else "many"


def cards(facts: Facts) -> Markup:
    """Return a card for each topic, the most prevalent first."""
    most = max(topic.prevalence for topic in facts.topics)
    return element(
        "div", *(_card(topic, facts, most) for topic in facts.topics), id="cards", class_="cards"
    )


def _card(topic: Topic, facts: Facts, most: float) -> Markup:
    name = f"title-{topic.id}"
    badges = [*_moved(topic), *_flags(topic)]
    head = element(
        "div",
        element("h3", f"Topic {topic.id}", id=name),
        element("span", percent(topic.prevalence), class_="share"),
        *badges,
        class_="card-head",
    )
    parts = [
        head,
        element("div", bar(topic.prevalence / most), class_="whole"),
        _words(topic.probable, "probable", "Most probable words"),
        _words(topic.distinctive, "distinctive", "Most distinctive words"),
    ]
    if topic.rose or topic.fell:
        changes = [("rose", topic.rose), ("fell", topic.fell)]
        terms = [
            element("div", element("dt", label), element("dd", ", ".join(words), dir="auto"))
            for label, words in changes
            if words
        ]
        parts.append(element("dl", *terms, class_="changes"))
    known = [share for share in topic.history if share is not None]
    if len(known) > 1:
        label = (
            f"Prevalence of Topic {topic.id} over {len(topic.history)} models: from "
            f"{percent(known[0])} to {percent(known[-1])}"
        )
        caption = element(
            "figcaption",
            element("span", percent(known[0])),
            element("span", percent(known[-1])),
            class_="quiet",
            aria_hidden="true",
        )
        parts.append(element("figure", sparkline(topic.history, label), caption, class_="trend"))
    if topic.nearest:
        near = [
            joined([link(id_), Markup(" "), element("span", f"{far:.2f}", class_="quiet")])
            for id_, far in topic.nearest
        ]
        parts.append(element("p", "Nearest: ", joined(near, ", "), class_="near"))
    return element(
        "article",
        *parts,
        id=f"topic-{topic.id}",
        class_="card",
        aria_labelledby=name,
        tabindex="-1",
        data_id=str(topic.id),
        data_share=f"{topic.prevalence:.6g}",
        data_moved="2" if topic.moved is None else f"{topic.moved:.6g}",
    )


def _moved(topic: Topic) -> list[Markup]:
    if topic.is_new:
        return [element("span", "new", class_="tag", data_kind="new")]
    if topic.moved is None:
        return []
    kind = "far" if topic.moved > FAR else "near"
    return [element("span", f"moved {topic.moved:.2f}", class_="tag", data_kind=kind)]


def _flags(topic: Topic) -> list[Markup]:
    tags = [
        element("span", REASONS[reason][0], class_="tag", data_kind="doubt")
        for reason in topic.reasons
    ]
    if topic.repeats:
        others = ", ".join(str(id_) for id_, _ in topic.repeats)
        tags.append(element("span", f"like {others}", class_="tag", data_kind="repeat"))
    return tags


def _words(words: Sequence[Word], kind: str, label: str) -> Markup:
    most = max((word.probability for word in words), default=0.0) or 1.0
    rows = []
    for word in words:
        value = (
            percent(word.probability)
            if kind == "probable"
            else f"\N{MULTIPLICATION SIGN} {word.lift:,.3g}"
        )
        rows.append(
            element(
                "li",
                element("span", word.text, class_="word", dir="auto", title=word.text),
                bar(word.probability / most),
                element("span", value, class_="value"),
            )
        )
    return element("ol", *rows, class_=f"words {kind}", aria_label=label)
