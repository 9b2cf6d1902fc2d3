"""The settings table: one row gives file, variable, flag and help; all errors come at once."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.settings.table import SETTINGS, TABLE, Secret, describe, load_settings

KAFKA = {"kafka.bootstrap": "localhost:9092", "kafka.topic": "news"}
PRIVATE = {"privacy.epsilon": 1.0, "privacy.delta": 1e-6, "privacy.ledger": "ledger"}
PRIVATE |= {"kafka.partitions": "3"}


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


def problems_of(path=None, environment=None, flags=None):
    with pytest.raises(InvalidSettingError) as caught:
        load_settings(path, environment or {}, flags)
    return str(caught.value).split("\n")[1:]


def test_defaults_are_valid_and_of_their_own_kind():
    settings = load()
    assert settings["topics.count"] == 20
    assert settings.origins["topics.count"] == "default"
    assert settings.origins["kafka.topic"] == "flag"
    assert not settings.private
    assert len(settings) == len(TABLE) == len(set(settings))
    given = {s.name: s.default for s in TABLE if s.default is not None and s.kind != "secret"}
    assert {name: load_settings(None, {}, {**given, **KAFKA})[name] for name in given} == given | {
        name: KAFKA[name] for name in KAFKA if name in given
    }


def test_flags_go_before_variables_and_these_before_the_file(write):
    path = write("[topics]\ncount = 5\nseed = 5\nwarmup = 5\n")
    environment = {"STREAMLDA_TOPICS_COUNT": "6", "STREAMLDA_TOPICS_SEED": "6", "HOME": "x"}
    settings = load(path, environment, topics__count=7, topics__solver=None)
    names = ("topics.count", "topics.seed", "topics.warmup", "topics.solver")
    assert [settings[name] for name in names] == [7, 6, 5, "whitened-tensor"]
    assert [settings.origins[n] for n in names] == ["flag", "environment", "file", "default"]


def test_a_file_gives_every_kind_of_value(write):
    path = write(
        '[source]\nkind = "files"\nfiles = ["a", "b"]\n'
        '[memory]\nlimit = "1.5 GiB"\nqueue = 2097152\n'
        '[checkpoint]\ninterval = "5 min"\n[topics]\nalpha_0 = 2\n'
        "[breaker]\nshare = 0.25\n[privacy]\nnoise_in_state = true\n"
    )
    settings = load_settings(path, {})
    assert settings["source.files"] == ("a", "b")
    assert settings["memory.limit"] == 3 * 2**29
    assert settings["memory.queue"] == 2**21
    assert settings["checkpoint.interval"] == 300.0
    assert settings["topics.alpha_0"] == 2.0
    assert settings["breaker.share"] == 0.25
    assert settings["privacy.noise_in_state"] is True


def test_variables_are_read_as_text():
    settings = load(
        environment={
            "STREAMLDA_MEMORY_LIMIT": "512MiB",
            "STREAMLDA_CHECKPOINT_INTERVAL": "90",
            "STREAMLDA_SOURCE_ALLOW_GAPS": "true",
            "STREAMLDA_SOURCE_FILES": "a:b",
            "STREAMLDA_TOPICS_ALPHA_0": "0.5",
            "STREAMLDA_TEST_ANYTHING": "is not ours",
        }
    )
    assert settings["memory.limit"] == 2**29
    assert settings["checkpoint.interval"] == 90.0
    assert settings["source.allow_gaps"] is True
    assert settings["source.files"] == ("a", "b")
    assert settings["topics.alpha_0"] == 0.5


def test_all_problems_are_reported_at_once(write):
    path = write('[topics]\ncount = 0\nsolverr = "x"\n[log]\nlevel = "loud"\n')
    found = problems_of(path, {"STREAMLDA_TOPICS_SEEED": "1"}, {"http.port": 70000})
    assert found == [
        "- STREAMLDA_TOPICS_SEEED is no known variable; did you mean STREAMLDA_TOPICS_SEED?",
        "- topics.count must be >= 1, got topics.count='0' (file)",
        "- topics.solverr is no known setting; did you mean topics.solver? (file)",
        "- log.level must be one of debug, info, warning, error, got log.level='loud' (file)",
        "- http.port must be >= 0 and <= 65535, got http.port='70000' (flag)",
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[topic]\ncount = 5\n", "topic.count is no known setting; did you mean topics.count?"),
        ("[privacy]\nbootstrap = 5\n", "did you mean kafka.bootstrap?"),
        ("count = 5\n", "count is no known setting"),
        ("[topics.count]\nx = 1\n", "topics.count must be a whole number"),
        ("[topics]\ncount = true\n", "topics.count must be a whole number"),
        ("[topics]\nalpha_0 = nan\n", "topics.alpha_0 must be a finite number"),
        ("[source]\nallow_gaps = 2\n", "source.allow_gaps must be true or false"),
        ("[source]\nfiles = [1]\n", "source.files must be a list of text"),
        ("[memory]\nlimit = '5 parsec'\n", "memory.limit must be a size"),
        ("[memory]\nlimit = '1.2.3 MiB'\n", "memory.limit must be a size"),
        ("[checkpoint]\ninterval = 0\n", "checkpoint.interval must be >= 0.1"),
        ("[privacy]\nepsilon = 0\n", "privacy.epsilon must be > 0"),
        ("[privacy]\ndelta = 1\n", "privacy.delta must be > 0 and <= 1"),
        ("[kafka]\ntopic = ''\n", "kafka.topic must be text"),
        ("not toml", "must be TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_a_hint(write, text, hint):
    assert hint in "\n".join(problems_of(write(text)))


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path):
    assert "must be readable" in problems_of(tmp_path / "none.toml")[0]
    (tmp_path / "latin").write_bytes(b"\xff")
    assert "it is not UTF-8" in problems_of(tmp_path / "latin")[0]


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        ({"kafka.topic": None}, "kafka.topic must be set"),
        ({"source.kind": "files"}, "source.files must be set"),
        ({"source.format": "csv"}, "source.format must be json or text"),
        ({"kafka.protocol": "SASL_SSL"}, "kafka.mechanism, kafka.username"),
        ({"words.kind": "given"}, "words.file goes with"),
        ({"words.file": "x"}, "words.file goes with"),
        ({"http.host": "0.0.0.0"}, "http.token_file must be set"),
        ({"dead_letters.with_text": True}, "dead_letters.topic must be set"),
        ({"privacy.delta": 1e-6}, "must have privacy.epsilon"),
        ({"words.kind": "selected"}, "must have privacy.epsilon"),
        ({"topics.solver": "noisy-power"}, "must have privacy.epsilon"),
        ({"privacy.epsilon": 1.0}, "privacy.ledger must be set"),
        ({**PRIVATE, "words.kind": "learned"}, "words are data"),
        ({**PRIVATE, "privacy.unit": "user"}, "source.user_field"),
        ({**PRIVATE, "privacy.documents_per_user": 2}, "privacy.unit user"),
        ({**PRIVATE, "privacy.mode": "prefix"}, "snapshots.most must be set"),
        ({**PRIVATE, "topics.solver": "online-power"}, "noisy-power is its private form"),
        ({**PRIVATE, "topics.refine": True}, "topics.refine must be left out with privacy"),
        ({"topics.refine": True, "topics.map_file": "m"}, "topics.refine must be left out"),
        ({"topics.refine": True, "topics.solver": "simultaneous"}, "topics.refine must be left"),
    ],
)
def test_settings_that_clash_are_refused(flags, hint):
    assert hint in "\n".join(problems_of(flags={**KAFKA, **flags}))


def test_a_private_run_is_accepted():
    assert load(**{name.replace(".", "__"): value for name, value in PRIVATE.items()}).private


SASL = {
    "kafka.protocol": "SASL_SSL",
    "kafka.mechanism": "PLAIN",
    "kafka.username": "reader",
    **KAFKA,
}


def test_a_secret_comes_from_a_file_and_is_never_shown(tmp_path, write):
    (tmp_path / "password").write_text("hunter2\n")
    path = write(f"[kafka]\npassword_file = '{tmp_path / 'password'}'\n")
    settings = load_settings(path, {}, SASL)
    assert settings["kafka.password"].reveal() == "hunter2"
    assert "hunter2" not in repr(settings) + str(dict(settings))


def test_a_secret_comes_from_a_variable_and_is_never_shown(monkeypatch):
    monkeypatch.setenv("STREAMLDA_KAFKA_PASSWORD", "hunter2")
    settings = load_settings(None, {"STREAMLDA_KAFKA_PASSWORD": "hunter2"}, SASL)
    assert settings["kafka.password"].reveal() == "hunter2"
    assert "hunter2" not in repr(settings) + str(dict(settings))
    by_file = load_settings(None, {"STREAMLDA_HTTP_TOKEN_FILE": "/run/token"}, KAFKA)
    assert by_file["http.token"] == Secret("/run/token", "STREAMLDA_HTTP_TOKEN")


@pytest.mark.parametrize("value", ["hunter2", 7])
def test_a_secret_in_the_settings_file_or_a_flag_is_refused_unseen(write, value):
    path = write(f"[kafka]\npassword = {value!r}\n")
    for found in (problems_of(path), problems_of(flags={"kafka.password": value})):
        assert "is a secret, and must stand in a file" in "\n".join(found)
        assert str(value) not in "\n".join(found)


def test_the_table_is_described_whole():
    rows = describe()
    assert [row["name"] for row in rows] == list(SETTINGS)
    assert len({row["variable"] for row in rows}) == len({row["flag"] for row in rows}) == len(rows)
    for row in rows:
        assert row["help"].endswith(".")
        assert all(isinstance(value, str) for value in row.values())
    by_name = {row["name"]: row for row in rows}
    assert by_name["memory.queue"] == {
        "name": "memory.queue",
        "type": "bytes",
        "default": "64 MiB",
        "unit": "bytes",
        "help": "Documents that wait, at most.",
        "variable": "STREAMLDA_MEMORY_QUEUE",
        "flag": "--memory-queue",
    }
    assert by_name["kafka.password"]["flag"] == "--kafka-password-file"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.just(10**400),
    st.from_regex(r"[0-9.]{1,400} ?(MiB|h|)", fullmatch=True),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = st.sampled_from([*SETTINGS, *(f"{n}_file" for n in SETTINGS)]) | st.text(max_size=12)


def refusal(path, flags):
    """Return the message of a refusal, or None; no other error is let through."""
    try:
        load_settings(path, {}, flags)
    except InvalidSettingError as error:
        return str(error)
    return None


def is_a_list_of_problems(message):
    head, *problems = message.split("\n")
    return f"problems={len(problems)};" in head and all(p.startswith("- ") for p in problems)


@given(flags=st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_values_are_read_or_refused_never_worse(flags):
    message = refusal(None, {**KAFKA, **flags})
    assert message is None or is_a_list_of_problems(message)


@given(text=st.text(string.printable, max_size=80))
def test_any_file_is_read_or_refused_never_worse(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "streamlda.toml"
    path.write_text(text, "utf-8")
    message = refusal(path, KAFKA)
    assert message is None or is_a_list_of_problems(message)
