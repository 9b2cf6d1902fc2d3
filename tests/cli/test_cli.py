"""The command line, in this process: what it prints, writes and refuses."""

import gzip
import json
import subprocess
import sys
import tempfile

import pytest
from click.testing import CliRunner

from streamlda.cli import commands
from streamlda.errors import SourceError
from streamlda.model.topic_model import load
from streamlda_connectors.files import FileSource


def run(*arguments, code=0, stdin=None):
    result = CliRunner().invoke(commands, [str(part) for part in arguments], input=stdin)
    assert result.exit_code == code, (result.exit_code, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Planted documents to learn from and to evaluate on, their truth, and a model."""
    folder = tmp_path_factory.mktemp("cli")
    sizes = ("--topics", 3, "--vocabulary-size", 200, "--mean-length", 40)
    run("simulate", "-n", 6000, *sizes, "-o", folder / "a.jsonl.gz", "--truth", folder / "truth")
    run("simulate", "-n", 6300, *sizes, "-o", folder / "all.txt")
    lines = (folder / "all.txt").read_text("ascii").splitlines(keepends=True)
    (folder / "held_out.txt").write_text("".join(lines[6000:]), "ascii")
    fitted = run(
        *("fit", folder / "a.jsonl.gz", "-k", 3, "-o", folder / "model"),
        *("--max-document-frequency", "1.0"),
    )
    (folder / "summary").write_text(fitted.stderr, "utf-8")
    return folder


def test_simulate_writes_the_same_documents_as_text_and_json(folder):
    with gzip.open(folder / "a.jsonl.gz", "rt") as file:
        texts = [json.loads(line)["text"] for line in file]
    assert texts == (folder / "all.txt").read_text("ascii").splitlines()[:6000]
    truth = load(folder / "truth")
    assert (truth.n_components, truth.n_features, truth.alpha_0) == (3, 200, 1.0)
    assert set(" ".join(texts).split()) <= set(truth.vocabulary.words)


def test_fit_summarizes_what_it_did(folder):
    summary = (folder / "summary").read_text("utf-8")
    assert "words (learned from 6,000 documents)" in summary
    assert "6,000 documents in" in summary
    assert "documents/s" in summary
    assert "0.0% of" in summary
    assert load(folder / "model").documents_seen == 6000


@pytest.mark.parametrize("solver", ["online-power", "simultaneous"])
def test_fit_takes_an_online_solver_and_its_rounds(folder, tmp_path, solver):
    common = ("fit", folder / "a.jsonl.gz", "-k", 3, "--max-document-frequency", "1.0", "--quiet")
    options = ("--solver", solver, "--documents-per-round", 100, "--iterations", 4)
    run(*common, *options, "--restarts", 5, "--warmup-documents", 1000, "-o", tmp_path / "model")
    model = load(tmp_path / "model")
    asked = ("solver", "documents_per_round", "n_iterations", "n_restarts")
    assert [model.settings[name] for name in asked] == [solver, 100, 4, 5]
    arguments = ("evaluate", tmp_path / "model", folder / "held_out.txt", "--json")
    found = json.loads(run(*arguments, "--truth", folder / "truth").stdout)
    assert found["matched_l1_error"] < 0.3


def test_fit_refines_topics_of_documents_that_follow_another_model(folder, tmp_path):
    common = ("fit", folder / "a.jsonl.gz", "-k", 3, "--max-document-frequency", "1.0", "--quiet")
    asked = {"plain": (), "other": ("--alpha0", 10), "told": ("--alpha0", 10, "--no-refine")}
    models = {}
    for name, options in asked.items():
        run(*common, *options, "-o", tmp_path / name)
        models[name] = load(tmp_path / name)
    refined = {name: "refinement" in model.diagnostics for name, model in models.items()}
    assert refined == {"plain": False, "other": True, "told": False}
    assert models["other"].diagnostics["refinement"]["documents"] == 6000
    warmups = [model.settings["warmup_documents"] for model in models.values()]
    assert warmups == [20_000, 20_000, 10_000]


def test_fit_warns_of_topics_that_rounds_have_not_reached(folder, tmp_path):
    common = ("fit", folder / "a.jsonl.gz", "-k", 3, "--max-document-frequency", "1.0", "--quiet")
    options = ("--solver", "online-power", "--documents-per-round", 600)
    said = run(*common, *options, "-o", tmp_path / "model").stderr
    # Of 3 topics with 6 rounds each.
    assert "warning: the rounds of online-power must all end" in said
    assert "documents_missing=4800" in said
    assert load(tmp_path / "model").n_components == 2


def test_fit_saves_what_was_read_when_a_source_fails(folder, tmp_path, monkeypatch):
    polls = []

    def poll_once(self, max_records, timeout_seconds=1.0, poll=FileSource.poll):
        polls.append(max_records)
        if len(polls) > 1:
            raise SourceError("a source must go on answering; try again later")
        return poll(self, max_records, timeout_seconds)

    monkeypatch.setattr(FileSource, "poll", poll_once)
    failed = run("fit", folder / "all.txt", "-k", 2, "-o", tmp_path / "model", code=1)
    assert "error: a source must go on answering" in failed.stderr
    assert load(tmp_path / "model").documents_seen == polls[0] < 6300


def test_topics_prints_a_table_and_json(folder):
    shown = run("topics", folder / "model", "--words", 4).stdout
    assert "documents   6,000" in shown
    assert "learned: the choice of words depends on the documents" in shown
    assert "not private" in shown
    described = json.loads(run("topics", folder / "model", "--json", "--words", 4).stdout)
    assert [len(topic["words"]) for topic in described["topics"]] == [4, 4, 4]
    shares = [topic["share"] for topic in described["topics"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert described["vocabulary"]["data_dependent"]
    for topic in described["topics"]:
        assert " ".join(word["word"] for word in topic["words"]) in shown


def test_evaluate_finds_the_planted_topics(folder):
    arguments = ("evaluate", folder / "model", folder / "held_out.txt")
    found = json.loads(run(*arguments, "--json", "--truth", folder / "truth").stdout)
    assert set(found) == {
        *("perplexity", "unigram_perplexity", "npmi", "diversity", "documents"),
        *("held_out_tokens", "unseen_share", "matched_l1_error"),
    }
    assert found["documents"] == 300
    assert found["perplexity"] < 0.8 * found["unigram_perplexity"]
    assert found["matched_l1_error"] < 0.2
    assert found["npmi"] > 0
    table = run(*arguments).stdout
    assert f"perplexity           {found['perplexity']:,.4f}" in table
    assert "matched_l1_error" not in table


def test_evaluate_takes_ngrams_and_a_single_word(folder, tmp_path):
    words = tmp_path / "words"
    words.write_text(f"{load(folder / 'truth').top_words(1)[0][0][0]}\n", "ascii")
    (tmp_path / "n.txt").write_text("apple bread cheese apple bread\n" * 9, "ascii")
    run("fit", folder / "held_out.txt", "--vocabulary", words, "-k", 1, "-o", tmp_path / "one")
    run(
        *("fit", tmp_path / "n.txt", "--ngrams", 2, "-k", 1, "-o", tmp_path / "two"),
        *("--max-document-frequency", "1.0"),
    )
    one = run("evaluate", tmp_path / "one", folder / "held_out.txt", "--json").stdout
    assert json.loads(one)["npmi"] is None
    two = run("evaluate", tmp_path / "two", tmp_path / "n.txt", "--json").stdout
    assert json.loads(two)["documents"] == 9
    assert "bread cheese" in load(tmp_path / "two").vocabulary.words


def test_infer_numbers_its_lines_and_keeps_their_order(folder, tmp_path):
    lines = (folder / "held_out.txt").read_text("ascii").splitlines()[:3]
    path = tmp_path / "in.txt"
    path.write_bytes(f"{lines[0]}\n\n{lines[1]}\n".encode() + b"\xff\n" + lines[2].encode())
    result = run("infer", folder / "model", path)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["record"] for row in rows] == [1, 3, 5]
    assert {row["location"] for row in rows} == {str(path)}
    assert [row["tokens"] for row in rows] == [len(line.split()) for line in lines]
    for row in rows:
        assert sum(row["topics"]) == pytest.approx(1, abs=1e-5)
    assert "1 records skipped: not-utf8 1" in result.stderr
    run("infer", folder / "model", path, "--top", 2, "-o", tmp_path / "out")
    top = [json.loads(line)["topics"] for line in (tmp_path / "out").read_text().splitlines()]
    for pairs, row in zip(top, rows, strict=True):
        best = sorted(range(3), key=lambda k: -row["topics"][k])[:2]
        assert pairs == [[k, row["topics"][k]] for k in best]


def test_rejects_have_the_right_line_numbers(tmp_path):
    good = json.dumps({"text": "apple bread cheese"})
    lines = [good, "{", good, '{"text": 1}', "", '{"text": "apple"}', '{"title": ""}', good]
    path, rejects = tmp_path / "a.jsonl", tmp_path / "rejects"
    path.write_text("\n".join(lines), "ascii")
    words = tmp_path / "words"
    words.write_text("apple\nbread\ncheese\n", "ascii")
    common = ("-k", 1, "--vocabulary", words, "--rejects", rejects)
    result = run("fit", path, *common, "-o", tmp_path / "m")
    found = [json.loads(line) for line in rejects.read_text("ascii").splitlines()]
    assert sorted((each["record"], each["reason"]) for each in found) == [
        (2, "not-json"),
        (4, "not-text"),
        (6, "short"),
        (7, "missing-field"),
    ]
    assert {each["location"] for each in found} == {str(path)}
    assert "1 documents skipped" in result.stderr
    assert "3 records passed over: missing-field 1, not-json 1, not-text 1" in result.stderr
    assert "apple" not in result.stderr


def fit_lines(tmp_path, content, *options, code, name="a.jsonl"):
    (tmp_path / name).write_bytes(content)
    result = run("fit", tmp_path / name, "-k", 1, "-o", tmp_path / "m", *options, code=code)
    if code:
        assert not (tmp_path / "m").exists()
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("streamlda: error: ")
    return result.stderr


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.txt", b"", "no document came"),
        ("a.txt", b"\xff\xfe\n\xff", "not-utf8=2"),
        ("a.jsonl", b"{oops}\n[]\n", "not-an-object=1 not-json=1"),
        ("a.jsonl", b'{"body": "secret words here"}\n{"text": 7}\n', "missing-field=1 not-text=1"),
        ("a.txt", b"x" * (17 * 2**20), "too-long=1"),
        ("a.txt", b"apple bread\ncheese\n", "short=2"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a b c"}\n')[:-9], "broken-compression=1"),
    ],
    ids=["empty", "not-utf8", "not-json", "no-text", "long-line", "short", "broken-gzip"],
)
def test_unusable_documents_are_an_error_that_counts_them(tmp_path, name, content, wanted):
    # A given vocabulary, for without documents there is nothing to learn one from.
    (tmp_path / "words").write_text("apple\nbread\n", "ascii")
    message = fit_lines(tmp_path, content, "--vocabulary", tmp_path / "words", code=1, name=name)
    assert wanted in message
    assert "secret" not in message


def test_what_comes_before_a_break_is_learned(tmp_path):
    lines = (b'{"text": "apple bread cheese"}\n' for _ in range(50_000))
    broken = gzip.compress(b"".join(lines))[:-200]
    summary = fit_lines(
        tmp_path, broken, "--max-document-frequency", "1.0", code=0, name="a.jsonl.gz"
    )
    assert "1 records passed over: broken-compression 1" in summary
    assert load(tmp_path / "m").documents_seen > 1000


def test_topics_that_the_data_cannot_tell_apart_are_warned_of(tmp_path):
    text = "".join(f"{words}\n" * 300 for words in ("apple bread fig", "cheese dates kiwi"))
    (tmp_path / "a.txt").write_text(text, "ascii")
    result = run("fit", tmp_path / "a.txt", "-k", 5, "-o", tmp_path / "m", "--quiet")
    assert "streamlda: warning: before refinement: word pairs tell" in result.stderr
    assert "of 5 topics apart" in result.stderr
    assert "documents/s" not in result.stderr
    assert "?" in run("topics", tmp_path / "m").stdout


def refused(tmp_path):
    (tmp_path / "a.txt").write_text("apple bread cheese\n" * 9, "ascii")
    (tmp_path / "one").write_text("apple\n", "ascii")
    source, output = tmp_path / "a.txt", ("-o", tmp_path / "m")
    return {
        "--vocabulary, --vocabulary-size and --hash-bits exclude": (
            *("fit", source, "-k", 1, *output),
            *("--hash-bits", 4, "--vocabulary", tmp_path / "one"),
        ),
        "topics=2 words=1": (
            *("fit", tmp_path / "gone", "-k", 2, *output),
            *("--vocabulary", tmp_path / "one"),
        ),
        "topics=9 words=8": (
            *("fit", tmp_path / "gone", "-k", 9, *output),
            *("--vocabulary-size", 8),
        ),
        "topics=4 words=3": (
            *("fit", source, "-k", 4, *output),
            *("--max-document-frequency", "1.0"),
        ),
        "must be one of whitened-tensor, online-power, simultaneous, got solver='x'": (
            *("fit", source, "-k", 1, *output, "--solver", "x"),
        ),
        "must not have --documents-per-round": (
            *("fit", source, "-k", 1, *output, "--documents-per-round", 9),
            *("--epsilon", 1, "--delta", "1e-6", "--ledger", tmp_path / "l"),
            *("--snapshot-every", 1000, "--hash-bits", 4),
        ),
        "must be one of whitened-tensor, noisy-power, simultaneous, got solver='online-power'": (
            *("fit", source, "-k", 1, *output, "--solver", "online-power"),
            *("--epsilon", 1, "--delta", "1e-6", "--ledger", tmp_path / "l"),
            *("--snapshot-every", 1000, "--hash-bits", 4),
        ),
        "refine=True solver='simultaneous'": (
            *("fit", source, "-k", 1, *output, "--solver", "simultaneous", "--refine"),
        ),
        "--epsilon and --refine exclude each other": (
            *("fit", source, "-k", 1, *output, "--refine"),
            *("--epsilon", 1, "--delta", "1e-6", "--ledger", tmp_path / "l"),
            *("--snapshot-every", 1000, "--hash-bits", 4),
        ),
        "alpha_0=-1.0": ("fit", source, "-k", 1, *output, "--alpha0", "-1"),
        "'x' is not a number or auto": ("fit", source, "-k", 1, *output, "--alpha0", "x"),
        "max_document_frequency=1.5": (
            *("fit", source, "-k", 1, *output),
            *("--max-document-frequency", "1.5"),
        ),
        "'a' is not a number of documents": (
            *("fit", source, "-k", 1, *output),
            *("--min-document-frequency", "a"),
        ),
        "'0..x' is not a number n": ("fit", source, "-k", 1, *output, "--ngrams", "0..x"),
        "token_pattern='('": ("fit", source, "-k", 1, *output, "--token-pattern", "("),
        "must be the only SOURCE": ("fit", source, "-", "-k", 1, *output),
        "must not be compressed": ("fit", "-", "--compression", "gzip", "-k", 1, *output),
        "must not replace what is read": ("fit", source, "-k", 1, "-o", source),
        "must be two files": ("fit", source, "-k", 1, *output, "--rejects", tmp_path / "m"),
        "must be a regular file": ("fit", source, "-k", 1, "-o", tmp_path),
        "Missing option '--topics'": ("fit", source, *output),
        "must end in one of": (
            *("simulate", "-n", 1, "-k", 1, "--vocabulary-size", 9),
            *("-o", tmp_path / "a.csv"),
        ),
    }


@pytest.mark.parametrize("case", range(22))
def test_wrong_usage_is_one_line_and_exit_code_2(tmp_path, case):
    cases = refused(tmp_path)
    assert len(cases) == 22
    wanted, arguments = list(cases.items())[case]
    result = run(*arguments, code=2)
    assert wanted in result.stderr
    assert result.stderr.startswith("streamlda: error: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_missing_things_are_one_line_and_exit_code_1(folder, tmp_path):
    for arguments, wanted in [
        (("fit", tmp_path / "gone.txt", "-k", 1, "-o", tmp_path / "m"), "gone.txt"),
        (("fit", tmp_path, "-k", 1, "-o", tmp_path / "no" / "m"), "must exist and be writable"),
        (("topics", tmp_path / "gone"), "No such file"),
        (("topics", folder / "held_out.txt"), "a streamlda file must be in its format"),
        (("infer", folder / "model", tmp_path / "gone"), "gone"),
    ]:
        result = run(*arguments, code=1)
        assert wanted in result.stderr
        assert result.stderr.startswith("streamlda: error: ")
        assert result.stderr.count("\n") == 1


def test_demo_shows_topics_speed_and_a_known_truth(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = run("demo", "--documents", 3000, "--topics", 5, "--quiet").stdout
    assert "documents/s" in shown
    assert "mean L1 error 0.0" in shown
    path = shown.split("streamlda topics ")[1].split()[0]
    assert load(path).n_components == 5


def every_option():
    for name, command in commands.commands.items():
        for option in command.params:
            if option.param_type_name == "option" and option.name != "help":
                yield name, option


def test_every_option_says_what_it_is_and_its_default():
    for name, option in every_option():
        where = f"{name} {option.opts}"
        assert option.help, where
        said = option.required or option.is_flag or option.show_default
        assert said or "[default: " in option.help, where


@pytest.mark.parametrize("arguments", [[], ["--help"], ["fit", "--help"], ["--version"]])
def test_help_imports_nothing_slow(arguments):
    program = (
        "import sys\nfrom streamlda.cli import commands\n"
        "try: commands.main(sys.argv[1:], 'streamlda')\n"
        "finally: print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & {"numpy", "numba", "scipy", "sklearn", "tqdm", "fsspec", "pyarrow"}
    assert done.returncode == (0 if arguments else 2)
    assert "streamlda" in done.stdout
