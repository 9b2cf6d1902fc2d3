"""Rules on settings that must fit together, as data.

A term is a setting that is given, ``section.key``, or has one of some values,
``section.key=a|b``. What no row can say is a message with a test; the message names settings as
``{section.key}``.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

from streamlda.settings.setting import FIT, INFER, RUN, WITHOUT_DOCUMENTS
from streamlda.settings.table import SETTINGS, KafkaSettings, RunSettings
from streamlda.stream.credentials import AWS_MSK_IAM, GSSAPI, OAUTHBEARER

#: When a run breaks a rule, by its message.
Rules = dict[str, Callable[[RunSettings], object]]

#: `kafka.partitions` that the members of a consumer group share.
GROUP = "group"

LOOPBACK = ("127.0.0.1", "::1", "localhost")

# fmt: off
#: Terms on the left need those on the right.
NEEDS = {
    "source.kind=kafka": "kafka.bootstrap kafka.topic",
    "source.delimiter source.include": "source.kind=files",
    "dead_letters.topic source.format=registry source.time_field=@record": "source.kind=kafka",
    "snapshots.time_bins source.time_format": "source.time_field",
    "source.format=registry": "registry.url",
    "vocabulary.hash_bits": "vocabulary.kind=hashed",
    "vocabulary.size": "vocabulary.kind=learned|private",
    "vocabulary.file": "vocabulary.kind=given",
    "vocabulary.grow_every vocabulary.min_document_frequency vocabulary.max_document_frequency":
        "vocabulary.kind=learned",
    "topics.projection_file cluster.dask privacy.public_model": "topics.solver=whitened-tensor",
    "cluster.dask": "privacy.unit=document",
    "cluster.dask privacy.public_model": "privacy.mode=window",
    "privacy.public_model": "privacy.clipping=quantile",
    "topics.seeds topics.refine vocabulary.grow_every":
        "topics.solver=whitened-tensor|online-power",
    "http.operator_token": "http.token",
    "infer.topic": "kafka.topic",
    "dead_letters.topic": "kafka.bootstrap",
    "registry.url": "source.format=registry",
    "kafka.key_file": "kafka.certificate_file",
    "registry.password": "registry.username",
    "kafka.partitions=group": "kafka.group source.kind=kafka",
    "privacy.documents_per_user source.user_field": "privacy.unit=user",
    "privacy.unit=user": "privacy.documents_per_user source.user_field",
    "privacy.epsilon": "privacy.delta",
    "privacy.delta privacy.ledger privacy.unit privacy.documents_per_user privacy.relation "
    "privacy.mode privacy.clipping privacy.refinement_rounds privacy.public_model "
    "vocabulary.kind=private topics.solver=noisy-power topics.solver=simultaneous":
        "privacy.epsilon",
}

#: Terms on the left must be left out with the term on the right, and why.
EXCLUDES = {
    ("vocabulary.kind vocabulary.file vocabulary.size vocabulary.hash_bits vocabulary.documents "
     "vocabulary.grow_every vocabulary.phrases vocabulary.min_document_frequency "
     "vocabulary.max_document_frequency", "topics.projection_file"): "it brings its own words",
    ("topics.seeds topics.refine", "topics.projection_file"): "it brings topics",
    ("topics.seeds", "vocabulary.grow_every"): "their words stay",
    ("topics.seeds", "kafka.partitions=group"): "members share a start",
    ("topics.solver topics.representative_documents snapshots.most vocabulary.grow_every",
     "kafka.partitions=group"): "",
    ("source.time_field topics.representative_documents topics.seeds "
     "topics.projection_file vocabulary.grow_every vocabulary.kind=private", "cluster.dask"): "",
    ("source.format=csv|parquet|json|file", "source.kind=kafka|follow"): "it has no end",
    ("topics.refine topics.warmup_documents topics.projection_file", "privacy.epsilon"):
        "a private run keeps no documents",
    ("snapshots.seconds kafka.partitions=group", "privacy.epsilon"):
        "windows are fixed before any record is read",
    ("topics.seeds", "vocabulary.kind=private"): "their words must be public",
    ("vocabulary.kind=private", "privacy.unit=user"):
        "users take part in the choice of words and in the topics",
    ("topics.solver=online-power", "privacy.epsilon"): "take noisy-power",
    ("source.id_field source.time_field topics.representative_documents "
     "topics.representative_texts", "privacy.epsilon"): "what is shown of documents is not private",
    ("vocabulary.grow_every vocabulary.min_document_frequency vocabulary.max_document_frequency",
     "privacy.epsilon"): "exact counts of words reveal documents",
    ("dead_letters.topic source.most_lost breaker.share breaker.records",
     "privacy.epsilon"): "which records were rejected, and how many, is private",
    ("output.keep", "privacy.epsilon"): "snapshots that were paid for stay",
    ("source.records_field", "privacy.epsilon"):
        "one broken record would take all others of its file along: convert it to JSON Lines",
    ("source.encoding", "privacy.epsilon"): "convert the records to UTF-8 first (iconv)",
}
# fmt: on


def _cannot_log_in(kafka: KafkaSettings) -> bool:
    named = kafka.username and kafka.password
    if not kafka.protocol.startswith("SASL") or kafka.mechanism == GSSAPI:
        return False
    if kafka.mechanism == AWS_MSK_IAM:
        return kafka.protocol != "SASL_SSL"
    if kafka.mechanism == OAUTHBEARER:
        return not (named if kafka.token_endpoint else kafka.token)
    return not (kafka.mechanism and named)


# fmt: off
#: Of commands that read documents.
SOURCE: Rules = {
    "{infer.topic} must be set for Kafka, which has no end: name the topic to write":
        lambda s: s.source.kind == "kafka" and s.command == INFER and not s.infer.topic,
    "{source.files} must name files, or for a stream {kafka.topic} a topic":
        lambda s: not (s.source.kind == "kafka" or s.source.files),
    "{kafka.topic} and {source.files} must not both be set":
        lambda s: s.source.kind != "kafka" and s.source.files and s.kafka.topic,
    "{source.kind} follow needs a daemon (streamlda run): a fit reads files once":
        lambda s: s.source.kind == "follow" and s.command == FIT,
    "standard input (-) is not the only source":
        lambda s: "-" in s.source.files and (len(s.source.files) > 1 or s.source.kind != "files"),
    "{kafka.mechanism}, {kafka.username} and {kafka.password} must be set for SASL; OAUTHBEARER "
    "needs {kafka.token}, or {kafka.token_endpoint} and both, and AWS_MSK_IAM SASL_SSL":
        lambda s: _cannot_log_in(s.kafka),
}
LEARNING: Rules = {
    "{output.file} must be set":
        lambda s: s.command == FIT and s.output.file is None,
    "{vocabulary.kind} given needs {vocabulary.file}":
        lambda s: s.vocabulary.kind == "given"
        and s.vocabulary.file is None and s.privacy.public_model is None,
    "{vocabulary.grow_every} needs {topics.refine}: sums take no further words":
        lambda s: s.vocabulary.grow_every and s.topics.refine is False,
    "{vocabulary.phrases} must be a file of phrases where words grow, or are not learned":
        lambda s: (s.vocabulary.phrases or "").isdecimal()
        and (s.vocabulary.grow_every or s.vocabulary.kind != "learned"),
    "{cluster.dask} needs files that are read once and that all workers can open":
        lambda s: s.cluster.dask and get_source_kind(s) != "files",
    "{checkpoint.folder} must be left out with {cluster.dask} and {privacy.epsilon}":
        lambda s: s.cluster.dask and s.private and s.is_given("checkpoint.folder"),
    "{kafka.partitions} must be all, group, or numbers such as 0,3":
        lambda s: s.kafka.partitions not in ("all", GROUP)
        and not all(map(str.isdecimal, s.kafka.partitions.split(","))),
    "{kafka.partitions} group needs a daemon (streamlda run)":
        lambda s: s.kafka.partitions == GROUP and s.command == FIT and not s.private,
    "{snapshots.every} and {snapshots.most} need {privacy.epsilon} here":
        lambda s: (s.cluster.dask or not s.command) and not s.private
        and (s.is_given("snapshots.every") or s.is_given("snapshots.most")),
}
#: Not of a fit, whose file may hold settings of a daemon.
OUTPUTS: Rules = {
    "{dead_letters.topic} must not be {kafka.topic}: rejected letters would be read again":
        lambda s: s.dead_letters.topic and s.dead_letters.topic == s.kafka.topic,
    "{http.token} must be set unless {http.host} is loopback":
        lambda s: s.http.port and s.http.host not in LOOPBACK and not s.http.token,
    "{infer.topic} must be a topic of its own":
        lambda s: s.infer.topic and s.infer.topic in (s.kafka.topic, s.dead_letters.topic),
    "{infer.group} must be another group than {kafka.group}":
        lambda s: s.infer.topic and s.infer.group and s.infer.group == s.kafka.group,
    "{infer.topic} is not of a daemon any more: run streamlda infer beside it, on {output.folder}":
        lambda s: s.infer.topic and s.command == RUN,
}
#: Of private runs.
PRIVATE: Rules = {
    "{topics.refinement_passes} must be 0 or auto with {privacy.epsilon}: a refinement reads "
    "documents without noise":
        lambda s: s.topics.refinement_passes not in ("auto", 0),
    "{topics.seeds} with {privacy.epsilon} needs {topics.solver} whitened-tensor":
        lambda s: s.topics.seeds and s.topics.solver != "whitened-tensor",
    "{snapshots.most} must be set for users, who pay for each snapshot":
        lambda s: s.command and not s.snapshots.most and s.privacy.unit == "user",
    "{privacy.public_model} must have its own words or those of {vocabulary.file}, which are "
    "public: leave out {vocabulary.kind} and {vocabulary.hash_bits}":
        lambda s: s.privacy.public_model is not None and s.vocabulary.kind != "given",
}
#: Of private runs that read documents.
PRIVATE_SOURCE: Rules = {
    "{privacy.ledger} must be set with {privacy.epsilon}: a file that remembers spending":
        lambda s: s.privacy.ledger is None,
    "{snapshots.every} must be set with {privacy.epsilon}: the number of records of a window, "
    "fixed before any is read":
        lambda s: s.snapshots.every is None and s.ends,
    "{vocabulary.kind} must not be learned with {privacy.epsilon}: words reveal documents; set "
    "{vocabulary.kind} private, {vocabulary.file} FILE, {vocabulary.hash_bits} BITS or "
    "{privacy.public_model} FILE":
        lambda s: s.vocabulary.kind == "learned",
    "{source.allow_gaps} must be left out with privacy unless {kafka.partitions} is one number; "
    "where records are gone, begin in an empty checkpoint.folder with kafka.start latest":
        lambda s: s.source.kind == "kafka" and not s.kafka.partitions.isdecimal()
        and s.source.allow_gaps,
    "{source.files} must name one file with privacy: with several files that grow, record slots "
    "would depend on the lengths of documents":
        lambda s: s.source.kind == "follow"
        and (len(s.source.files) != 1 or any(set(name) & set("*?[") for name in s.source.files)),
}
# fmt: on


class Term(NamedTuple):
    """A setting, and values of it that count; without values it must be given."""

    name: str
    values: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> list[Self]:
        """Return the terms of a row."""
        pairs = (each.partition("=") for each in text.split())
        return [cls(name, tuple(filter(None, values.split("|")))) for name, _, values in pairs]

    def holds(self, settings: RunSettings) -> bool:
        """Tell whether the settings have it."""
        value = settings[self.name]
        return value in self.values if self.values else bool(value)

    def is_on(self, settings: RunSettings) -> bool:
        """Tell whether it was asked for: a default asks for nothing."""
        if self.values:
            return settings[self.name] in self.values
        return settings.is_given(self.name) and settings[self.name] is not False

    def __str__(self) -> str:
        return " ".join([f"{{{self.name}}}", *([" or ".join(self.values)] if self.values else [])])


def clashes(settings: RunSettings) -> list[str]:
    """Return the rules that are broken by settings that are right one by one."""
    reads, fits = settings.command not in WITHOUT_DOCUMENTS, settings.command == FIT
    rules = (SOURCE if reads else {}) | LEARNING | ({} if fits else OUTPUTS)
    if settings.private:
        rules |= PRIVATE | (PRIVATE_SOURCE if reads else {})
    excluded: dict[str, str] = {}
    for (terms, other), why in EXCLUDES.items():
        (present,) = Term.read(other)
        for term in Term.read(terms) if present.is_on(settings) else ():
            if term.is_on(settings):
                text = f"{term} must be left out with {present}"
                excluded[term.name] = f"{text}: {why}" if why else text
    missing = [
        f"{term} needs {needed}"
        for terms, other in NEEDS.items()
        for needed in Term.read(other)
        if not needed.holds(settings) and (reads or not needed.name.startswith("source."))
        for term in Term.read(terms)
        if term.is_on(settings) and term.name not in excluded
        if not fits or FIT in SETTINGS[term.name].commands
    ]
    broken = [rule for rule, is_broken in rules.items() if is_broken(settings)]
    return [*missing, *excluded.values(), *broken]


def get_source_kind(settings: RunSettings) -> str:
    """Return the kind of the source; standard input has a kind of its own."""
    return "stdin" if settings.source.files == ("-",) else settings.source.kind
