"""Rules on settings that must fit together; each names settings as ``{section.key}``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlda.settings.setting import FIT, INFER, RUN, TOPICS, WITHOUT_DOCUMENTS
from streamlda.stream.credentials import AWS_MSK_IAM, GSSAPI, OAUTHBEARER
from streamlda.stream.event_time import RECORD_TIME

if TYPE_CHECKING:
    from streamlda.settings.run_settings import RunSettings
    from streamlda.settings.table import KafkaSettings

#: `kafka.partitions` that the members of a consumer group share.
GROUP = "group"

LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: Settings without a meaning where there is no budget.
ONLY_PRIVATE = (
    *("privacy.delta", "privacy.ledger", "privacy.unit", "privacy.documents_per_user"),
    *("privacy.relation", "privacy.mode", "privacy.clipping", "privacy.refinement_rounds"),
    "privacy.public_model",
)
TOP = ("infer.top",)
#: Settings of words; a projection has words of its own.
WORDS = tuple(f"vocabulary.{key}" for key in ("kind", "file", "size", "hash_bits", "documents"))
WORDS += ("vocabulary.grow_every", "vocabulary.phrases")
WORDS += tuple(f"vocabulary.{key}_document_frequency" for key in ("min", "max"))
NOT_PRIVATE = {
    "topics.refine": "a refinement reads documents without noise",
    "topics.gibbs_sweeps": "a refinement reads documents without noise",
    "topics.warmup_documents": "a private run keeps no documents",
    "topics.documents_per_round": "the rounds share {snapshots.every}",
    "topics.memory_documents": "the rounds share {snapshots.every}",
    "topics.projection_file": "projections come from noisy sums",
    "source.id_field": "an id that is shown is not private",
    "topics.representative_documents": "a document that is shown is not private",
    "topics.representative_texts": "a text that is shown is not private",
    "vocabulary.grow_every": "new words reveal documents: a private run pays for words once",
    "vocabulary.min_document_frequency": "exact counts of words reveal documents",
    "vocabulary.max_document_frequency": "exact counts of words reveal documents: use "
    "{vocabulary.stop_words} FILE",
    "source.rejects": "which records were rejected is private",
    "source.most_lost": "how many records were rejected is private",
    "dead_letters.topic": "which records were rejected is private",
    "breaker.share": "how many records were rejected is private",
    "breaker.records": "how many records were rejected is private",
    "output.keep": "a ledger names every snapshot that it paid for, and they all stay",
    "source.time_field": "event times reveal documents: a window is known by its record slots",
}


def clashes(settings: RunSettings) -> list[str]:
    """Return the rules that are broken by settings that are right one by one."""
    own = (_sources, _sharing, _learning, _outputs, _privacy)
    return [wrong for rules in own for wrong in rules(settings)]


def _sources(settings: RunSettings) -> Iterator[str]:
    source, kafka, registry = settings.source, settings.kafka, settings.registry
    if settings.command in WITHOUT_DOCUMENTS:
        return
    if source.kind in TOPICS:
        if settings.command == INFER and not settings.infer.topic:
            yield "{infer.topic} must be set for Kafka, which has no end: name the topic to write"
        if settings.command == INFER and settings.source.max_documents is not None:
            yield "{source.max_documents} must be left out for Kafka: infer reads it without end"
        if not kafka.bootstrap or not kafka.topic:
            yield "{kafka.bootstrap} and {kafka.topic} must both be set for Kafka"
    elif not source.files:
        yield "{source.files} must name files" + (
            ", or {kafka.topic} a topic" if settings.command in (FIT, RUN) else ""
        )
    elif kafka.topic:
        yield "{kafka.topic} and {source.files} must not both be set"
    if source.kind not in ("files", *TOPICS) and source.format not in ("auto", "jsonl", "text"):
        yield "{source.format} must be jsonl or text for files that grow"
    if source.kind in TOPICS and source.format not in ("auto", "jsonl", "text", "registry"):
        yield "{source.format} must be jsonl, text or registry for Kafka"
    if (source.format == "registry") != (registry.url is not None):
        yield "{source.format} registry and {registry.url} go together"
    if source.format == "registry" and source.kind not in TOPICS:
        yield "{source.format} registry needs {source.kind} kafka or dead-letters"
    if (registry.username is None) != (registry.password is None):
        yield "{registry.username} and {registry.password} go together"
    if settings.command == RUN and any(name.endswith(".toml") for name in source.files):
        yield "{source.files} must name documents: pass a file of settings by --config"
    if source.kind == "files" and source.allow_gaps:
        yield "{source.allow_gaps} must not be set for files that are read once: they have none"
    for name in ("compression", "delimiter"):
        if source.kind != "files" and settings.given(f"source.{name}"):
            yield f"{{source.{name}}} needs files that are read once"
    if source.time_field == RECORD_TIME and source.kind not in TOPICS:
        yield f"{{source.time_field}} {RECORD_TIME} needs {{source.kind}} kafka"
    if settings.given("snapshots.time_bins") and source.time_field is None:
        yield "{snapshots.time_bins} needs {source.time_field}"
    if "-" in source.files and (len(source.files) > 1 or source.kind != "files"):
        yield "standard input (-) must be the only source"
    if source.files == ("-",) and source.delimiter is not None:
        yield "{source.delimiter} must be left out for standard input, which has no columns"
    if source.files == ("-",) and source.compression not in ("infer", "none"):
        yield "{source.compression} must be left out for standard input: decompress it first"
    yield from _login(kafka)


def _login(kafka: KafkaSettings) -> Iterator[str]:
    user = kafka.username and kafka.password
    if not kafka.protocol.startswith("SASL"):
        return
    if kafka.mechanism == OAUTHBEARER:
        if not (kafka.token_endpoint and user) and (kafka.token_endpoint or not kafka.token):
            yield (
                "{kafka.token}, or {kafka.token_endpoint}, {kafka.username} and {kafka.password} "
                f"must be set for {OAUTHBEARER}"
            )
    elif kafka.mechanism == AWS_MSK_IAM:
        if kafka.protocol != "SASL_SSL":
            yield f"{{kafka.protocol}} must be SASL_SSL for {AWS_MSK_IAM}"
    elif kafka.mechanism != GSSAPI and not (user and kafka.mechanism):
        yield "{kafka.mechanism}, {kafka.username} and {kafka.password} must be set for SASL"


def _sharing(settings: RunSettings) -> Iterator[str]:
    given = settings.kafka.partitions
    share = re.fullmatch("([0-9]+)/([0-9]+)", given)
    known = given in ("all", GROUP) or all(map(str.isdecimal, given.split(",")))
    if not known and not (share and int(share[1]) < int(share[2])):
        yield "{kafka.partitions} must be all, group, numbers such as 0,3, or i/n with 0 <= i < n"
    if settings.kafka.partitions != GROUP or settings.private:
        return
    if settings.command == FIT:
        yield "{kafka.partitions} group needs a daemon (streamlda run)"
    if settings.command != RUN:
        return
    if settings.kafka.group is None:
        yield "{kafka.group} must be set with {kafka.partitions} group"
    if settings.source.kind != "kafka":
        yield "{source.kind} must be kafka with {kafka.partitions} group"
    yield from shared_clashes(settings)


def shared_clashes(settings: RunSettings) -> list[str]:
    """Return the rules that a daemon breaks that shares partitions with others."""
    topics = settings.topics
    wrong = {
        "topics.solver": topics.solver != "whitened-tensor",
        "topics.representative_documents": topics.representative_documents,
        "snapshots.most": settings.snapshots.most is not None,
        "vocabulary.grow_every": settings.vocabulary.grow_every is not None,
    }
    why = "must be left out where {kafka.partitions} are shared: group, or i/n"
    return [f"{{{name}}} {why}" for name, found in wrong.items() if found]


def _learning(settings: RunSettings) -> Iterator[str]:
    words, topics = settings.vocabulary, settings.topics
    other_solver = topics.solver != "whitened-tensor"
    by_file, has_words = words.file is not None, settings.privacy.public_model is not None
    # A public model brings words, too.
    if words.kind == "given" and not (by_file or has_words):
        yield "{vocabulary.kind} given needs {vocabulary.file}"
    if by_file and words.kind not in ("given", "private"):
        yield "{vocabulary.file} needs {vocabulary.kind} given or private"
    if settings.given("vocabulary.hash_bits") and words.kind != "hashed":
        yield "{vocabulary.hash_bits} needs {vocabulary.kind} hashed"
    if settings.given("vocabulary.size") and words.kind not in ("learned", "private"):
        yield "{vocabulary.size} needs a learned or private vocabulary"
    if words.grow_every is not None and not settings.private:
        if words.kind != "learned":
            yield "{vocabulary.grow_every} needs a learned vocabulary"
        refined = {
            "{topics.refine}": topics.refine is not False,
            "{topics.refinement_passes} above 0": topics.refinement_passes != 0,
            "{topics.solver} whitened-tensor": not other_solver,
        }
        for wanted, found in refined.items():
            if not found:
                yield f"{{vocabulary.grow_every}} needs {wanted}: sums take no further words"
        if words.phrases and words.phrases.isdecimal():
            yield "{vocabulary.phrases} must be a file of phrases with {vocabulary.grow_every}"
        if topics.seeds:
            yield "{topics.seeds} must be left out with {vocabulary.grow_every}: their words stay"
    if words.phrases and words.phrases.isdecimal() and words.kind != "learned":
        yield "{vocabulary.phrases} must be a file of phrases for words that are not learned"
    if topics.projection_file and other_solver:
        yield "{topics.projection_file} needs {topics.solver} whitened-tensor"
    own = [name for name in WORDS if name in settings.origins]
    if topics.projection_file and own:
        listed = ", ".join(f"{{{name}}}" for name in own)
        yield f"{{topics.projection_file}} brings its own words: leave {listed} out"
    learned = ("vocabulary.min_document_frequency", "vocabulary.max_document_frequency")
    for name in learned if words.kind != "learned" and not settings.private else ():
        if settings.given(name):
            yield f"{{{name}}} needs a learned vocabulary"
    if settings.command and topics.documents_per_round is not None and not other_solver:
        yield "{topics.documents_per_round} goes with a {topics.solver} that takes rounds"
    if topics.seeds and topics.projection_file:
        yield "{topics.seeds} must be left out with {topics.projection_file}, which brings topics"
    if topics.seeds and settings.kafka.partitions == "group":
        yield "{topics.seeds} must be left out with {kafka.partitions} group, which shares a start"
    if topics.seeds and other_solver:
        yield "{topics.seeds} needs {topics.solver} whitened-tensor"
    if topics.refine and (topics.projection_file or other_solver):
        yield (
            "{topics.refine} must be left out with {topics.projection_file} or another "
            "{topics.solver} than whitened-tensor"
        )
    shown = topics.representative_documents or settings.infer.topic
    if settings.source.id_field and settings.command in (FIT, RUN) and not shown:
        places = "{topics.representative_documents}"
        places += " or {infer.topic}" if settings.command == RUN else ""
        yield f"{{source.id_field}} needs {places}: ids are shown with documents only"
    if topics.representative_texts and not topics.representative_documents:
        yield "{topics.representative_texts} needs {topics.representative_documents}"
    if settings.cluster.dask is None and settings.given("cluster.shards"):
        yield "{cluster.shards} needs {cluster.dask}"
    if settings.cluster.dask is not None:
        if other_solver:
            yield "{cluster.dask} needs {topics.solver} whitened-tensor"
        if get_source_kind(settings) != "files":
            yield "{cluster.dask} needs files that are read once and that all workers can open"
        names = ["source.max_documents", *(["checkpoint.folder"] if settings.private else [])]
        names += ["topics.representative_documents", "topics.seeds", "source.time_field"]
        names += ["vocabulary.grow_every"]
        if not settings.private:
            names += ["snapshots.every", "snapshots.seconds", "snapshots.most"]
        for name in names:
            if settings.given(name):
                yield f"{{{name}}} must be left out with {{cluster.dask}}"


def _outputs(settings: RunSettings) -> Iterator[str]:
    http, letters = settings.http, settings.dead_letters
    if settings.command == FIT:
        if settings.output.file is None:
            yield "{output.file} must be set"
        return
    if letters.topic and settings.source.kind not in TOPICS:
        yield "{dead_letters.topic} needs {source.kind} kafka or dead-letters"
    if letters.topic and letters.topic == settings.kafka.topic:
        yield "{dead_letters.topic} must not be {kafka.topic}: rejected letters would be read again"
    if letters.with_text and not letters.topic:
        yield "{dead_letters.topic} must be set for {dead_letters.with_text}"
    yield from _inference(settings)
    if (settings.output.topic or letters.topic) and not settings.kafka.bootstrap:
        yield "{kafka.bootstrap} must be set to write to topics"
    if http.port and http.host not in LOOPBACK and not http.token:
        yield "{http.token} must be set unless {http.host} is loopback"
    if http.operator_token and not http.token:
        yield "{http.operator_token} needs {http.token}, for readers who may see only snapshots"


def _inference(settings: RunSettings) -> Iterator[str]:
    infer, topic = settings.infer, settings.infer.topic
    if topic is None:
        for name in ("infer.group", "infer.disclose", *(() if settings.command == INFER else TOP)):
            if settings.given(name):
                yield f"{{infer.topic}} must be set for {{{name}}}"
        return
    if settings.source.kind != "kafka":
        yield "{infer.topic} needs {kafka.topic}, not files or dead letters"
    if topic == settings.kafka.topic:
        yield "{infer.topic} must be another topic than {kafka.topic}"
    if topic in (settings.output.topic, settings.dead_letters.topic):
        yield "{infer.topic} must be a topic of its own"
    if infer.group is not None and infer.group == settings.kafka.group:
        yield "{infer.group} must be another group than {kafka.group}"
    if settings.private and not infer.disclose:
        yield (
            "{infer.disclose} must be set for {infer.topic} with {privacy.epsilon}: proportions "
            "reveal each document, which the privacy promise does not cover"
        )


def _privacy(settings: RunSettings) -> Iterator[str]:
    if not settings.private:
        only = (*ONLY_PRIVATE, *(("source.user_field",) if settings.command == FIT else ()))
        given = [name for name in only if settings.given(name)]
        if given:
            names = ", ".join(f"{{{name}}}" for name in given)
            yield f"{names} {'need' if given[1:] else 'needs'} {{privacy.epsilon}}"
        if settings.vocabulary.kind == "private":
            yield "{vocabulary.kind} private needs {privacy.epsilon}"
        if settings.topics.solver == "noisy-power":
            yield "{topics.solver} noisy-power needs {privacy.epsilon}"
        for name in ("snapshots.every", "snapshots.most"):
            if not settings.command and settings.given(name):
                yield f"{{{name}}} needs {{privacy.epsilon}}"
        return
    for name, reason in NOT_PRIVATE.items():
        if settings.given(name) and settings[name] is not False:
            yield f"{{{name}}} must be left out with {{privacy.epsilon}}: {reason}"
    if settings.topics.refinement_passes not in ("auto", 0):
        yield (
            "{topics.refinement_passes} must be 0 or auto with {privacy.epsilon}: a refinement "
            "reads documents without noise"
        )
    if settings.topics.solver == "online-power":
        yield "{topics.solver} must not be online-power with {privacy.epsilon}: take noisy-power"
    yield from _private_terms(settings)
    if settings.command not in WITHOUT_DOCUMENTS:
        yield from _private_stream(settings)


def _private_terms(settings: RunSettings) -> Iterator[str]:
    privacy, by_user = settings.privacy, settings.privacy.unit == "user"
    if privacy.delta is None:
        yield "{privacy.delta} must be set with {privacy.epsilon}: far below 1 / documents"
    if not by_user and privacy.documents_per_user is not None:
        yield "{privacy.documents_per_user} needs {privacy.unit} user"
    if by_user and privacy.documents_per_user is None:
        yield "{privacy.documents_per_user} must be set for {privacy.unit} user"
    if privacy.public_model is not None:
        yield from _public_model(settings)
    if settings.command and (by_user or privacy.mode == "prefix") and not settings.snapshots.most:
        yield "{snapshots.most} must be set for users and in prefix mode"


def _public_model(settings: RunSettings) -> Iterator[str]:
    wanted = {
        "privacy.mode": ("window",),
        "privacy.clipping": ("quantile",),
        "topics.solver": ("whitened-tensor",),
    }
    if settings.vocabulary.kind != "given":
        yield (
            "{privacy.public_model} must have its own words or those of {vocabulary.file}, which "
            "are public: leave out {vocabulary.kind} and {vocabulary.hash_bits}"
        )
    for name, allowed in wanted.items():
        if settings[name] not in allowed:
            yield f"{{{name}}} must be {' or '.join(allowed)} with {{privacy.public_model}}"
    if settings.vocabulary.file is None:
        for name in ("stop_words", "ngrams", "token_pattern"):
            if settings.given(f"vocabulary.{name}"):
                yield (
                    f"{{vocabulary.{name}}} needs {{vocabulary.file}} with "
                    "{privacy.public_model}, which says how its words are read"
                )


def _private_stream(settings: RunSettings) -> Iterator[str]:
    source, words, by_user = settings.source, settings.vocabulary, settings.privacy.unit == "user"
    if settings.privacy.ledger is None:
        yield "{privacy.ledger} must be set with {privacy.epsilon}: a file that remembers spending"
    if settings.snapshots.every is None and settings.ends:
        yield (
            "{snapshots.every} must be set with {privacy.epsilon}: the number of records of a "
            "window, fixed before any is read"
        )
    if words.kind == "learned":
        yield (
            "{vocabulary.kind} must not be learned with {privacy.epsilon}: words reveal documents; "
            "set {vocabulary.kind} private, {vocabulary.file} FILE, {vocabulary.hash_bits} BITS or "
            "{privacy.public_model} FILE"
        )
    if by_user and words.kind == "private":
        yield (
            "{vocabulary.kind} must not be private for {privacy.unit} user: users take part in "
            "the choice of words and in the topics"
        )
    if by_user and not source.user_field:
        yield "{source.user_field} must be set for {privacy.unit} user"
    if not by_user and source.user_field and settings.command == FIT:
        yield "{source.user_field} needs {privacy.unit} user"
    if source.kind == "dead-letters":
        yield (
            "{source.kind} must not be dead-letters with {privacy.epsilon}: their records may have "
            "been in a release, which the ledger knows by the topic they came from"
        )
    if settings.kafka.partitions == GROUP:
        yield (
            "{kafka.partitions} must not be group with privacy: the partitions of a promise are "
            "fixed before any record is read. Daemons that share a topic are sites (streamlda site)"
        )
    many = source.kind == "kafka" and not settings.kafka.partitions.isdecimal()
    if many and source.allow_gaps:
        yield (
            "{source.allow_gaps} must not be set with privacy and more than one number in "
            "{kafka.partitions}: the record slot of each offset is fixed; where records are "
            "gone, begin in an empty checkpoint.folder with kafka.start latest"
        )
    patterned = any(set(name) & set("*?[") for name in source.files)
    if source.kind == "follow" and (len(source.files) != 1 or patterned):
        yield (
            "{source.files} must name one file with privacy: with several files that grow, record "
            "slots would depend on the lengths of documents"
        )
    if settings.cluster.dask is not None:
        yield from _private_cluster(settings)


def _private_cluster(settings: RunSettings) -> Iterator[str]:
    wanted = {
        "privacy.unit": ("document",),
        "privacy.mode": ("window",),
        "vocabulary.kind": ("given", "hashed"),
        "snapshots.seconds": (None,),
    }
    for name, allowed in wanted.items():
        if settings[name] not in allowed:
            yield f"{{{name}}} must be {' or '.join(map(str, allowed))} with {{cluster.dask}}"


def get_source_kind(settings: RunSettings) -> str:
    """Return the kind of the source; standard input has a kind of its own."""
    return "stdin" if settings.source.files == ("-",) else settings.source.kind
