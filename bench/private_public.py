"""A window with a public model: of like documents, and of another field, whose words help."""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from bench.kinds import (
    Case,
    Figure,
    Json,
    Scenario,
    at_least,
    at_most,
    mark,
    series,
)
from bench.private import corpus_details, ratios, variant
from bench.private_tasks import Learned, in_batches, judged, learn, read_texts

if TYPE_CHECKING:
    from bench.measure import Meter
    from streamlda.documents import DocumentBatch
    from streamlda.model.topic_model import TopicModel
    from streamlda.text.vocabulary import Vocabulary

PUBLIC_EPSILONS = [1.0, 3.0]
PUBLIC_LIMITS = {1.0: (0.150, 0.60), 3.0: (0.155, 0.58)}

#: What a window begins with; the other field is a corpus that lies beside the one measured.
STARTS = {"no public model": None, "public": "same", "another field": "20newsgroups.jsonl.gz"}
MOST_HURT = 1.01

#: Public documents where none of them are drawn.
PUBLIC_DOCUMENTS = 5000

#: Without a public model: ratio at most; in smaller windows topics and NPMI at least.
ALONE = "no public model"
ALONE_LIMITS = {1.0: 0.90, 3.0: 0.75}
SMALLER, SMALLER_LIMITS = 20_000, (3.0, 8, 0.10)


def public_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    # Public documents, those of a window, and those that topics are judged on.
    sizes = [500, 3000, 500] if quick else [5000, 50_000, 2000]
    common = {"n_components": 10 if quick else 20, "vocabulary_size": 8000}
    common |= {"drawn": sizes, "documents": sizes[1]}
    found = [
        Case(
            f"{name}, {mark(epsilon)}",
            "private_public",
            {**common, **variant("private", epsilon), "start": start},
        )
        for epsilon in PUBLIC_EPSILONS
        for name, start in STARTS.items()
    ]
    smaller = {**common, "documents": min(SMALLER, sizes[1]), "start": None}
    found += [
        Case(smaller_case(epsilon), "private_public", {**smaller, **variant("private", epsilon)})
        for epsilon in PUBLIC_EPSILONS
    ]
    alone = {**common, **variant("private", None), "start": "same"}
    return [*found, Case("public, unmoved", "private_public", alone)]


#: Private documents, public ones of another field that give the words, and documents of a window.
FIELDS = {
    "newsgroups": ("20newsgroups.jsonl.gz", "arxiv.jsonl.gz", 16_000),
    "abstracts": ("arxiv.jsonl.gz", "20newsgroups.jsonl.gz", 30_000),
}


def field_cases(quick: bool, contenders: tuple[str, ...]) -> list[Case]:
    found = []
    for (field, (private, public, size)), epsilon, with_it in product(
        FIELDS.items(), PUBLIC_EPSILONS, (False, True)
    ):
        parameters: Json = {"n_components": 20, "vocabulary_size": 8000, "private": private}
        # No document of the private field is public.
        n = 2000 if quick else size
        parameters |= {"drawn": [0, n, 1500], "words": public, "documents": n}
        parameters |= {"start": public if with_it else None, **variant("private", epsilon)}
        found.append(Case(field_case(field, epsilon, with_it), "private_public", parameters))
    return found


def field_case(field: str, epsilon: float, with_it: bool) -> str:
    return f"{field}, {'public model' if with_it else ALONE}, {mark(epsilon)}"


def field_figures(result: Json) -> list[Figure]:
    found = []
    for field, epsilon in product(FIELDS, PUBLIC_EPSILONS):
        alone, known = (
            mean(ratios(result, field_case(field, epsilon, with_it))) for with_it in (False, True)
        )
        name = f"perplexity with a public model over that without, {field}, {mark(epsilon)}"
        found.append(at_most(name, known / alone, MOST_HURT, "{:.3f}"))
    return found


def smaller_case(epsilon: float) -> str:
    return f"{ALONE}, {SMALLER:,} documents, {mark(epsilon)}"


def public_figures(result: Json) -> list[Figure]:
    found = []
    for epsilon, (npmi, ratio) in PUBLIC_LIMITS.items():
        case, of = f"public, {mark(epsilon)}", mark(epsilon)
        found.append(at_least(f"NPMI, {of}", mean(series(result, case, "npmi")), npmi, "{:.3f}"))
        name = f"perplexity over that of the word frequencies, {of}"
        found.append(at_most(name, mean(ratios(result, case)), ratio, "{:.3f}"))
        other, without = (
            mean(ratios(result, f"{name}, {of}")) for name in ("another field", ALONE)
        )
        name = f"the same with a public model of another field over that without, {of}"
        found.append(at_most(name, other / without, MOST_HURT, "{:.3f}"))
        name = f"perplexity over that of the word frequencies, {ALONE}, {of}"
        found.append(at_most(name, without, ALONE_LIMITS[epsilon], "{:.3f}"))
    epsilon, topics, npmi = SMALLER_LIMITS
    case = smaller_case(epsilon)
    for key, least, form in (("topics", topics, "{:.1f}"), ("npmi", npmi, "{:.3f}")):
        found.append(at_least(f"{key}, {case}", mean(series(result, case, key)), least, form))
    return found


# The task


def private_public(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """A window of documents drawn by the seed, from the topics and words of others that are public.

    Without epsilon, the public topics as they are.
    """
    from streamlda.private.public_start import PublicTopics

    start, K = parameters["start"], parameters["n_components"]
    train, held_out, words = drawn_counts(inputs, parameters, seed)
    train = train.rows(0, min(len(train), parameters["documents"]))
    public = None
    if start is not None:
        public = PublicTopics.of(public_model(inputs, parameters, seed), K, len(words), words)
    run = learn(in_batches(train), train.n_features, parameters, seed, public)
    meter.started()
    with meter.timed():
        if public is not None and parameters["epsilon"] is None:
            found = Learned(public.components, public.alpha, public.background)
        else:
            found = run()
    return judged(train, held_out, found)


def drawn(inputs: Json, parameters: Json, seed: int) -> list[str]:
    """Return texts drawn by the seed: those that are public, the window, those held out."""
    corpus = Path(inputs["corpus"])
    texts = read_texts(corpus.with_name(parameters.get("private", corpus.name)))
    order = np.random.default_rng(seed).permutation(len(texts))
    return [texts[i] for i in order[: sum(parameters["drawn"])]]


def spread_texts(inputs: Json, name: str, n: int) -> list[str]:
    """Return texts at equal distances in a corpus beside the one measured."""
    texts = read_texts(Path(inputs["corpus"]).with_name(name))
    return texts[:: max(1, len(texts) // n)][:n]


def words_of(texts: list[str], parameters: Json) -> Vocabulary:
    from streamlda.text.analysis import TextAnalyzer
    from streamlda.text.vocabulary import Vocabulary

    analyzer = TextAnalyzer(stop_words="english")
    return Vocabulary.learn(texts, size=parameters["vocabulary_size"], analyzer=analyzer)


def kept(inputs: Json, what: str, parameters: Json, seed: int) -> Path:
    """Return where something lies that several cases of a commit have in common."""
    from bench.measure import versions

    names = ("drawn", "vocabulary_size", "n_components", "private")
    sizes = [parameters.get(name) for name in names]
    about = json.dumps([inputs["counts"], sizes, what, seed, versions()["commit"]])
    name = hashlib.sha256(about.encode()).hexdigest()[:16]
    return Path(inputs["counts"]).with_name(f"public-{name}")


def drawn_counts(
    inputs: Json, parameters: Json, seed: int
) -> tuple[DocumentBatch, DocumentBatch, list[str]]:
    """Return counts of the window and of what is held out, over words of the public texts."""
    from scipy import sparse

    from streamlda.documents import DocumentBatch

    path, (first, n, _) = kept(inputs, "counts", parameters, seed), parameters["drawn"]
    if not path.with_suffix(".json").exists():
        texts = drawn(inputs, parameters, seed)
        public, other = texts[:first], parameters.get("words")
        if other is not None:
            public = spread_texts(inputs, other, PUBLIC_DOCUMENTS)
        vocabulary = words_of(public, parameters)
        counts = vocabulary.encode(texts[first:]).batch.to_csr()
        sparse.save_npz(path.with_suffix(".npz"), counts)
        path.with_suffix(".json").write_text(json.dumps(list(vocabulary.words)), "utf-8")
    counts = sparse.load_npz(path.with_suffix(".npz"))
    words = json.loads(path.with_suffix(".json").read_text("utf-8"))
    parts = (DocumentBatch.from_matrix(part) for part in (counts[:n], counts[n:]))
    return *parts, words


def public_model(inputs: Json, parameters: Json, seed: int) -> TopicModel:
    """Return a model of public documents, of the corpus itself or of another one beside it."""
    from streamlda import StreamLDA
    from streamlda.model.topic_model import load

    start, first = parameters["start"], parameters["drawn"][0] or PUBLIC_DOCUMENTS
    path = kept(inputs, start, parameters, seed).with_suffix(".model")
    if not path.exists():
        if start == "same":
            texts = drawn(inputs, parameters, seed)[:first]
        else:
            texts = spread_texts(inputs, start, first)
        vocabulary = words_of(texts, parameters)
        lda = StreamLDA(parameters["n_components"], random_state=seed, refinement_passes="thorough")
        lda.fit(vocabulary.encode(texts).batch.to_csr())
        lda.to_model(vocabulary.words).save(path)
    return load(path)


PRIVATE_PUBLIC_TASKS = (private_public,)

PRIVATE_PUBLIC = [
    Scenario(
        "private-public",
        "How much do topics of 5,000 public documents help, and do those of another field hurt?",
        5,
        public_cases,
        public_figures,
        needs_corpus=True,
        details=corpus_details,
    ),
    Scenario(
        "private-fields",
        "Does a public model of another field help, by its words alone?",
        5,
        field_cases,
        field_figures,
        needs_corpus=True,
        details=corpus_details,
    ),
]
