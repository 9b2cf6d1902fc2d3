"""The settings table: one row gives file, variable, flag and help; all errors come at once."""

import inspect
import re
import string

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.estimator import StreamLDA
from streamlda.settings.build import text_settings
from streamlda.settings.load import PARAMETERS, load_settings
from streamlda.settings.setting import Secret, show_value
from streamlda.settings.table import SECTIONS, SETTINGS, TABLE

KAFKA = {"kafka.bootstrap": "localhost:9092", "kafka.topic": "news"}
PRIVATE = {"privacy.epsilon": 1.0, "privacy.delta": 1e-6, "privacy.ledger": "ledger"}
GROWING = {"vocabulary.grow_every": 100}
PRIVATE |= {"kafka.partitions": "3", "vocabulary.kind": "hashed"}
FOLLOWED = {"source.kind": "follow", "source.files": ["a"], "kafka.topic": None}
REGISTRY = {"registry.url": "http://localhost:8081"}
SASL, PLAIN = {"kafka.protocol": "SASL_SSL"}, {"kafka.protocol": "SASL_PLAINTEXT"}
DASK, USERS = {"cluster.dask": "tcp://x"}, {"privacy.unit": "user"}
FIT = {"source.files": ["a"], "output.file": "model"}


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "streamlda.toml"
        path.write_text(text, "utf-8")
        return path

    return write


def load(path=None, environment=None, **flags):
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load_settings(path, environment or {}, {**KAFKA, **named})


def test_a_checkpoint_has_runs_of_words_as_all_of_its_version_have_them():
    assert text_settings(load())["vocabulary.ngrams"] == [1, 1]
    assert text_settings(load(vocabulary__ngrams=2))["vocabulary.ngrams"] == [1, 2]


def problems_of(path=None, environment=None, flags=None, command="run"):
    with pytest.raises(InvalidSettingError) as caught:
        load_settings(path, environment or {}, flags, command)
    first, *more = str(caught.value).split("\n")
    return more or [first]


def test_defaults_are_valid_and_read_from_text_they_are_the_same():
    settings = load()
    assert settings.topics.count == 10
    assert settings.origins == dict.fromkeys(KAFKA, "flag")
    assert not settings.private
    declared = [len(section.__slots__) for section in SECTIONS.values()]
    assert len(SETTINGS) == len(TABLE) == sum(declared)
    given = {each.name: show_value(each, each.default) for each in TABLE if "run" in each.commands}
    left_out = ("none", "vocabulary.hash_bits")
    given = {name: text for name, text in given.items() if not {name, text} & {*left_out}}
    again = load_settings(None, {}, {**given, "vocabulary.size": None, **KAFKA})
    assert all(again[setting.name] == settings[setting.name] for setting in TABLE)


def test_flags_go_before_variables_and_these_before_the_file(write):
    path = write("[topics]\ncount = 5\nseed = 5\nwarmup_documents = 5\n")
    environment = {"STREAMLDA_TOPICS_COUNT": "6", "STREAMLDA_TOPICS_SEED": "6", "HOME": "x"}
    settings = load(path, environment, topics__count=7, topics__solver=None)
    topics, origins = settings.topics, settings.origins
    found = [topics.count, topics.seed, topics.warmup_documents, topics.solver]
    assert found == [7, 6, 5, "whitened-tensor"]
    names = ("topics.count", "topics.seed", "topics.warmup_documents", "topics.solver")
    assert [origins.get(name) for name in names] == ["flag", "environment", "file", None]


KINDS = {
    "memory.queue": ("'1.5 GiB'", 3 * 2**29),
    "memory.kept": ("2097152", 2**21),
    "checkpoint.interval": ("'5 min'", 300.0),
    "topics.alpha_0": ("'auto'", "auto"),
    "breaker.share": ("0.25", 0.25),
    "source.allow_gaps": ("true", True),
    "vocabulary.min_document_frequency": ("3", 3),
    "vocabulary.max_document_frequency": ("0.3", 0.3),
    "vocabulary.ngrams": ("2", 2),
    "source.time_field": ("'at'", "at"),
    "snapshots.time_bins": ("'month'", "month"),
    "topics.seeds": ("'space: orbit;ice: cold'", ("space: orbit", "ice: cold")),
}


def test_a_file_and_variables_give_every_kind_of_value(write):
    path = write("".join(f"{name} = {text}\n" for name, (text, _) in KINDS.items()))
    variables = {
        f"STREAMLDA_{name.upper().replace('.', '_')}": text.strip("'")
        for name, (text, _) in KINDS.items()
    }
    variables |= {"STREAMLDA_SOURCE_FILES": "a:b", "STREAMLDA_TEST_ANYTHING": "is not ours"}
    files = {"source.files": ["a", "b"]}
    for settings in (
        load_settings(path, {}, {**files, "source.kind": "follow"}),
        load_settings(environment=variables, flags={"source.kind": "follow"}),
    ):
        assert {name: settings[name] for name in KINDS} == {n: v for n, (_, v) in KINDS.items()}
        assert settings.source.files == ("a", "b")
        assert isinstance(settings.vocabulary.min_document_frequency, int)


def test_what_is_left_open_is_known_from_the_rest_and_the_command(write):
    assert load().source.kind == "kafka"
    assert load(**REGISTRY).source.format == "registry"
    assert load(**PRIVATE).private
    assert load().vocabulary.kind == "learned"
    assert load(vocabulary__file="words").vocabulary.kind == "given"
    assert load(vocabulary__hash_bits=9).vocabulary.kind == "hashed"
    # A command has its own defaults, and reads the file of another.
    path = write("[http]\nport = 9\n[topics]\ncount = 5\n")
    settings = load_settings(path, {}, FIT, "fit")
    assert (settings.topics.count, settings.source.kind) == (5, "files")
    assert (settings.checkpoint.folder, load().checkpoint.folder) == (None, "checkpoints")


def test_a_command_takes_only_the_settings_that_it_names():
    names = ("source.files", "source.text_field")
    others = {"STREAMLDA_KAFKA_TOPIC": "t", "STREAMLDA_PRIVACY_DELTA": "x"}
    mine = {"STREAMLDA_SOURCE_TEXT_FIELD": "body", **others}
    flags = {"source.files": ["a"]}
    found = load_settings(environment=mine, flags=flags, command="infer", names=names)
    found = (found.source.text_field, found.source.files, found.kafka.topic)
    assert found == ("body", ("a",), None)
    for environment, named, message in (
        ({"STREAMLDA_SOURCE_TEXT": "body"}, flags, "'STREAMLDA_SOURCE_TEXT' is no known variable"),
        (mine, {}, "^source.files must name files, or for a"),
        (mine, {"source.files": ["-", "a"]}, "is not the only source"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            load_settings(environment=environment, flags=named, command="infer", names=names)


def test_all_problems_are_reported_at_once_as_they_were_given(write):
    path = write('[topics]\ncount = 0\nsolverr = "x"\n[log]\nlevel = "loud"\n')
    environment = {"STREAMLDA_TOPICS_SEEED": "1", "STREAMLDA_TOPICS_RESTARTS": "x"}
    assert problems_of(path, environment, {"http.port": 70000}) == [
        "- topics.count must be >= 1, got '0' (file)",
        "- 'topics.solverr' is no known setting; did you mean topics.solver? (file)",
        "- log.level must be one of debug, info, warning, error, got 'loud' (file)",
        "- 'STREAMLDA_TOPICS_SEEED' is no known variable; did you mean STREAMLDA_TOPICS_SEED?",
        "- STREAMLDA_TOPICS_RESTARTS must be an integer, got 'x' (environment)",
        "- http.port must be >= 0 and <= 65535, got '70000' (flag)",
    ]


def test_a_wrong_file_is_refused_with_a_hint(write):
    for text, hint in (
        ("[topic]\ncount = 5\n", "'topic.count' is no known setting; did you mean topics.count?"),
        ("[privacy]\nbootstrap = 5\n", "did you mean kafka.bootstrap?"),
        ("count = 5\n", "'count' is no known setting"),
        ("[topics]\ncount = true\n", "topics.count must be an integer"),
        ("[topics]\nalpha_0 = nan\n", "topics.alpha_0 must be a finite number or auto"),
        ("[topics]\nalpha_0 = 0\n", "topics.alpha_0 must be > 0"),
        ("[source]\nallow_gaps = 2\n", "source.allow_gaps must be true or false"),
        ("[source]\nfiles = [1]\n", "source.files must be a list of text"),
        ("[memory]\nqueue = '5 parsec'\n", "memory.queue must be a size"),
        ("[privacy]\ndelta = 1\n", "privacy.delta must be > 0 and <= 1"),
        ("[vocabulary]\nmax_document_frequency = 1.5\n", "or a fraction from 0.0 to 1.0"),
        ("[kafka]\ntopic = 'a/b'\n", "topic must be a name of Kafka: at most 249 letters"),
        ("not toml", "cannot be read as TOML"),
    ):
        assert hint in "\n".join(problems_of(write(text)))


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path):
    assert "none.toml': No such file" in problems_of(tmp_path / "none.toml")[0]
    (tmp_path / "latin").write_bytes(b"\xff")
    assert "as TOML in UTF-8" in problems_of(tmp_path / "latin")[0]


def test_settings_that_clash_are_refused():
    for flags, hint in (
        ({"kafka.topic": None}, "must name files, or for a stream kafka.topic a topic"),
        ({"kafka.bootstrap": None}, "source.kind kafka needs kafka.bootstrap"),
        ({"source.files": ["a"], "source.kind": "files"}, "must not both be set"),
        ({**FOLLOWED, "source.format": "csv"}, "or file must be left out with source.kind"),
        ({"source.format": "registry"}, "source.format registry needs registry.url"),
        ({"dead_letters.topic": "news"}, "dead_letters.topic must not be kafka.topic"),
        (SASL, "kafka.mechanism, kafka.username and kafka.password"),
        ({**SASL, "kafka.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs kafka.token, or kafka.t"),
        ({**PLAIN, "kafka.mechanism": "AWS_MSK_IAM"}, "and AWS_MSK_IAM SASL_SSL"),
        ({"vocabulary.kind": "given"}, "vocabulary.kind given needs vocabulary.file"),
        ({"vocabulary.kind": "hashed", "vocabulary.file": "x"}, "vocabulary.file needs"),
        ({"vocabulary.phrases": "9", **GROWING}, "must be a file of phrases where words grow"),
        ({"topics.refine": False, **GROWING}, "topics.refine: sums take no further words"),
        ({"topics.seeds": ("a: b",), **GROWING}, "topics.seeds must be left out with vocabulary.g"),
        ({"http.host": "0.0.0.0"}, "http.token must be set"),
        ({"http.operator_token_file": "o"}, "http.operator_token needs http.token"),
        ({"privacy.delta": 1e-6, "privacy.unit": "user"}, "privacy.unit needs privacy.epsilon"),
        ({**PRIVATE, "vocabulary.kind": "private", "topics.seeds": ("a: b",)}, "topics.seeds must"),
        ({**PRIVATE, "privacy.public_model": "m", "privacy.mode": "prefix"}, "privacy.mode window"),
        ({"topics.refine": True, "topics.projection_file": "m"}, "topics.refine must be left out"),
        ({"privacy.epsilon": 1.0}, "privacy.ledger must be set"),
        ({**PRIVATE, "vocabulary.kind": None}, "words reveal documents"),
        ({**PRIVATE, **USERS}, "source.user_field"),
        ({**PRIVATE, "privacy.documents_per_user": 2}, "privacy.unit user"),
        ({**PRIVATE, **USERS, "privacy.mode": "prefix"}, "snapshots.most must be set for users"),
        ({**PRIVATE, "topics.solver": "online-power"}, "take noisy-power"),
        ({"topics.solver": "simultaneous"}, "topics.solver simultaneous needs privacy.epsilon"),
        ({**PRIVATE, "topics.refine": True}, "topics.refine must be left out with privacy"),
        ({"kafka.partitions": "group"}, "kafka.partitions group needs kafka.group"),
        ({"kafka.partitions": "1/2"}, "kafka.partitions must be all, group, or numbers such as"),
        ({**PRIVATE, "topics.representative_documents": 1}, "shown of documents is not priv"),
        ({**PRIVATE, "source.most_lost": 0.5}, "which records were rejected, and how many"),
        ({**PRIVATE, "breaker.share": 0.9}, "breaker.share must be left out with privacy"),
        ({**PRIVATE, "kafka.partitions": "all", "source.allow_gaps": True}, "with privacy unless"),
        ({"infer.topic": "news"}, "infer.topic must be a topic of its own"),
        ({"infer.topic": "o", "infer.group": "g", "kafka.group": "g"}, "group must be another"),
        ({"infer.topic": "o"}, "run streamlda infer beside it"),
        ({"snapshots.time_bins": "month"}, "snapshots.time_bins needs source.time_field"),
    ):
        assert hint in "\n".join(problems_of(flags={**KAFKA, **flags}))


def test_a_setting_that_must_be_left_out_needs_nothing():
    for flags, name in (
        ({**PRIVATE, **GROWING}, "vocabulary.grow_every"),
        ({**PRIVATE, "kafka.partitions": "group"}, "kafka.partitions group"),
    ):
        (problem,) = problems_of(flags={**KAFKA, **flags})
        assert problem.startswith(f"{name} must be left out with privacy.epsilon: ")


def test_fit_names_the_settings_that_clash():
    for flags, hint in (
        ({"output.file": None}, "output.file must be set"),
        ({"source.files": ["-", "a"]}, "standard input (-) is not the only source"),
        ({"source.time_field": "@record"}, "source.time_field @record needs source.kind kafka"),
        ({**DASK, "source.time_field": "at"}, "source.time_field must be left out"),
        ({**DASK, "source.files": ["-"]}, "cluster.dask needs files"),
        ({**DASK, "topics.solver": "online-power"}, "cluster.dask needs topics.solver"),
        ({"privacy.epsilon": 1.0}, "snapshots.every must be set with privacy.epsilon"),
        ({**PRIVATE, **DASK, "privacy.mode": "prefix"}, "cluster.dask needs privacy.mode window"),
    ):
        flags = {**FIT, **flags}
        flags.pop("kafka.partitions", None)
        assert hint in "\n".join(problems_of(flags=flags, command="fit"))


def test_the_estimator_has_the_defaults_of_the_table():
    signature = inspect.signature(StreamLDA.__init__).parameters
    # How much a fit says is of the session, not of the run.
    others = ("self", "verbose")
    named = {name: p.default for name, p in signature.items() if name not in others}
    assert named.keys() == PARAMETERS.keys()
    special = {"random_state": None, "stream": "matrix"}
    assert named == {name: s.default for name, s in PARAMETERS.items()} | special
    described = re.findall(r"\n([a-z0-9_, ]+) : ", inspect.cleandoc(StreamLDA.__doc__))
    assert PARAMETERS.keys() <= {name for names in described for name in names.split(", ")}


def test_a_secret_comes_from_a_file_or_a_variable_and_is_never_shown(tmp_path, write, monkeypatch):
    sasl = {"kafka.protocol": "SASL_SSL", "kafka.mechanism": "PLAIN", "kafka.username": "reader"}
    (tmp_path / "password").write_text("hunter2\n")
    path = write(f"[kafka]\npassword_file = '{tmp_path / 'password'}'\n")
    monkeypatch.setenv("STREAMLDA_KAFKA_PASSWORD", "hunter2")
    sasl |= KAFKA
    by_variable = load_settings(None, {"STREAMLDA_KAFKA_PASSWORD": "hunter2"}, sasl)
    for settings in (load_settings(path, {}, sasl), by_variable):
        assert settings.kafka.password.reveal() == "hunter2"
        assert "hunter2" not in repr(settings) + str(settings)
    by_file = load_settings(None, {"STREAMLDA_HTTP_TOKEN_FILE": "/run/token"}, KAFKA)
    assert by_file.http.token == Secret("/run/token", "STREAMLDA_HTTP_TOKEN")


@pytest.mark.parametrize("value", ["hunter2", 7])
def test_a_secret_in_the_settings_file_or_a_flag_is_refused_unseen(write, value):
    path = write(f"[kafka]\npassword = {value!r}\n")
    for found in (problems_of(path), problems_of(flags={"kafka.password": value})):
        assert "is a secret in the open" in "\n".join(found)
        assert str(value) not in "\n".join(found)


def test_each_setting_has_names_of_its_own_and_help():
    # The page of the daemon is compared with the table.
    for column in ("variable", "flag"):
        assert len({getattr(setting, column) for setting in TABLE}) == len(TABLE)
    assert all(setting.help.endswith(".") for setting in TABLE)
    assert SETTINGS["kafka.password"].flag == "--kafka-password-file"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from([10**400, f"{10**400} MiB", f"{10**400}h"]),
    st.from_regex(r"[0-9.]{1,9} ?(MiB|h|)", fullmatch=True),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = st.sampled_from([*SETTINGS, *(f"{n}_file" for n in SETTINGS)]) | st.text(max_size=12)


def check_read_or_refused(path, flags):
    """Whatever is given: it is read, or refused with the problem, or a list of them."""
    try:
        load_settings(path, {}, flags)
    except InvalidSettingError as error:
        head, *problems = str(error).split("\n")
        assert head.endswith("; see streamlda run --help-all") == (not problems)
        assert len(problems) != 1
        assert not problems or f"problems={len(problems)};" in head
        assert all(problem.startswith("- ") for problem in problems)


@examples(max_examples=30)
@given(flags=st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_values_are_read_or_refused_never_worse(flags):
    check_read_or_refused(None, {**KAFKA, **flags})


@examples(max_examples=30)
@given(text=st.text(string.printable, max_size=80))
def test_any_file_is_read_or_refused_never_worse(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "streamlda.toml"
    path.write_text(text, "utf-8")
    check_read_or_refused(path, KAFKA)
