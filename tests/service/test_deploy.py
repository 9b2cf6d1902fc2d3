"""Files to deploy with: what they name is there, and what they ask for is what the daemon gives."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import promql_parser as promql
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from streamlda.cli import commands
from streamlda.service import memory, running, signals
from streamlda.service.http.guard import PROBES
from streamlda.service.machine import Phase
from streamlda.service.metrics import Metrics
from streamlda.service.status import FAILURES, LIVE_SECONDS, OUTCOMES, STALLABLE
from streamlda.settings.load import load_settings
from streamlda.settings.table import MIB
from streamlda.utils import exit_codes
from tests.service.planted import outcomes

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "streamlda" / "service" / "deploy"
SETTINGS = "/etc/streamlda/streamlda.toml"

#: Labels that Prometheus adds, and a metric that is its own.
ADDED = {"job", "instance"}
OWN = {"up": ("gauge", ADDED)}

#: Values that labels can have; of others any.
VALUES = {
    "phase": {phase.value for phase in Phase},
    "outcome": set(OUTCOMES),
    "what": {*FAILURES, *STALLABLE},
    "of": {"all", "interval", "records", "passed"},
}


def read(name):
    return (DEPLOY / name).read_text("utf-8")


def tree_of(name):
    return yaml.safe_load(read(name))


ALERTS = [rule for group in tree_of("alerts.yaml")["groups"] for rule in group["rules"]]
BOARD = json.loads(read("grafana/dashboard.json"))


def expressions():
    """Return every expression, with a name for it."""
    found = {rule["alert"]: rule["expr"] for rule in ALERTS}
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            name = f"{panel['title']} {target['refId']}"
            found[name] = target["expr"].replace("$__rate_interval", "5m")
    for variable in BOARD["templating"]["list"][1:]:
        query = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        found[variable["name"]] = f"count by ({query[2]}) ({query[1]})"
    return found


@pytest.fixture
def exported(status):
    """Return kind and labels of all that a daemon exports, by name."""
    status.note(documents=outcomes(), rejects={}, releases=0)
    status.note(rounds=1)
    status.note(documents=outcomes(learned=1), rejects={"not-json": 1}, releases=1)
    status.count("dead_letters", "not-json")
    status.count_failure("source", "away")
    status.note(resident_bytes=1)
    families = list(text_string_to_metric_families(Metrics(status).text().decode()))
    assert [family.name for family in families if not family.samples] == []
    samples = [(family.type, sample) for family in families for sample in family.samples]
    return OWN | {each.name: (kind, set(each.labels) | ADDED) for kind, each in samples}


def parts(tree, function=""):
    """Yield what selects series, with the function around it, and what groups or matches them."""
    function = tree.func.name if isinstance(tree, promql.Call) else function
    if isinstance(tree, promql.VectorSelector):
        yield function, tree
    modifier = getattr(tree, "modifier", None)
    labels = getattr(modifier, "matching", modifier)
    if labels is not None:
        yield function, labels
    inner = [getattr(tree, name, None) for name in ("lhs", "rhs", "expr", "vector_selector")]
    for each in [*inner, *getattr(tree, "args", [])]:
        if each is not None:
            yield from parts(each, function)


@pytest.mark.parametrize(("name", "text"), expressions().items())
def test_what_rules_and_dashboard_ask_for_is_exported(name, text, exported):
    selected, grouped = set(), set()
    for function, part in parts(promql.parse(text)):
        if not isinstance(part, promql.VectorSelector):
            grouped |= set(part.labels)
            continue
        kind, labels = exported[part.name]
        for matcher in part.matchers.matchers:
            assert matcher.name in labels
            assert matcher.value in VALUES.get(matcher.name, {matcher.value})
        selected |= labels
        counts = kind in ("counter", "histogram")
        assert counts == (function in ("rate", "increase")), f"{part.name} is a {kind}"
    assert selected
    assert grouped <= selected


def test_alerts_say_what_is_wrong_and_name_labels_that_are_there(exported):
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names) >= 10
    for rule in ALERTS:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["alert"].startswith("Streamlda")
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert re.fullmatch(r"\d+m", rule.get("for", "0m"))
        said = " ".join(rule["annotations"].values())
        tree = promql.parse(rule["expr"])
        selectors = [part for _, part in parts(tree) if isinstance(part, promql.VectorSelector)]
        labels = set().union(*(exported[each.name][1] for each in selectors))
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels


# Settings.


def settings_of(tmp_path, **variables):
    """Return the settings that are shipped, with variables, as the daemon takes them."""
    (tmp_path / "token").write_text("a token that nobody guesses\n")
    secret = "/run/secrets/token"
    environment = {
        name: str(tmp_path / "token") if value == secret else value
        for name, value in variables.items()
    }
    return load_settings(DEPLOY / "streamlda.toml", environment=environment, flags={})


def allows(monkeypatch, size):
    monkeypatch.setattr(memory, "allowed_bytes", lambda: size)


def test_the_settings_are_taken(tmp_path):
    settings = settings_of(tmp_path)
    running.check(settings)
    # What is commented out can be commented in.
    text = re.sub(r"^#(?=[a-z\[])", "", read("streamlda.toml"), flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text)
    assert {"privacy", "memory"} <= set(tomllib.loads(text)) - set(
        tomllib.loads(read("streamlda.toml"))
    )
    load_settings(tmp_path / "all.toml", environment={}, flags={})


# The container.


def instructions():
    """Return the instructions of the Containerfile: name and text."""
    lines = [line for line in read("Containerfile").splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line]


def of_image(name):
    """Return the texts of instructions of the image itself, not of what builds it."""
    found = instructions()
    last = max(i for i, (each, _) in enumerate(found) if each == "FROM")
    return [text for each, text in found[last:] if each == name]


def test_the_image_is_built_from_the_clone_with_locked_hashes():
    copied = [text.split()[:-1] for name, text in instructions() if name == "COPY"]
    sources = {part for parts in copied for part in parts if not parts[0].startswith("--from")}
    assert sources == {
        "requirements.lock",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "streamlda",
        "connectors",
    }
    assert all((ROOT / source).exists() for source in sources)
    installs = [text for name, text in instructions() if name == "RUN" and "pip install" in text]
    locked, own = installs
    assert {"--require-hashes", "--only-binary", "requirements.lock"} <= set(locked.split())
    assert {"--no-deps", "--no-build-isolation", "."} <= set(own.split())
    (base,) = [text for name, text in instructions() if name == "ARG"]
    assert re.fullmatch(r"PYTHON=docker.io/library/python:3\.1[123]\.\d+-slim-\w+", base)
    assert {text.split()[0] for name, text in instructions() if name == "FROM"} == {"${PYTHON}"}


def test_the_image_runs_as_a_number_and_shows_the_port_of_the_settings(tmp_path):
    (user,) = of_image("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert f"-o {user.partition(':')[0]} " in of_image("RUN")[0]
    assert of_image("EXPOSE") == [str(settings_of(tmp_path).http.port)]
    assert of_image("VOLUME") == of_image("WORKDIR") == ["/data"]
    variables = dict(part.split("=", 1) for text in of_image("ENV") for part in text.split())
    ours = {name: value for name, value in variables.items() if name.startswith("STREAMLDA_")}
    assert settings_of(tmp_path, **ours).log.format == "json"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_health_check_follows_the_settings(serve, status, tmp_path, host):
    (start,) = map(json.loads, of_image("ENTRYPOINT"))
    check = json.loads(of_image("HEALTHCHECK")[0].partition("CMD ")[2])
    assert check == [*start[:2], "--probe", *start[2:]]
    token = tmp_path / "token"
    token.write_text("a token that nobody guesses\n")
    server = serve(address={"host": host}, host=host, token="a token that nobody guesses")
    config = tmp_path / "streamlda.toml"

    def probed(port):
        http = f'[http]\nport = {port}\nhost = "{host}"\ntoken_file = "{token}"\n'
        config.write_text(f'[kafka]\nbootstrap = "localhost:9092"\ntopic = "news"\n{http}')
        command = [str(config) if part == SETTINGS else part for part in check[1:]]
        return CliRunner(env={}).invoke(commands, command).exit_code

    assert probed(server.port) == exit_codes.OK
    # A loop that stands still for too long.
    status._clock = lambda: LIVE_SECONDS
    assert probed(server.port) == exit_codes.NO
    status.beat()
    assert probed(server.port) == exit_codes.OK
    server.stop()
    assert probed(server.port) == exit_codes.NO
    assert probed(0) not in (exit_codes.OK, exit_codes.NO)


# Compose.


def test_services_of_compose_fit_each_other(tmp_path, monkeypatch):
    compose = tree_of("compose.yaml")
    services = compose["services"]
    broker, ours, prometheus, grafana = (
        services[name] for name in ("broker", "streamlda", "prometheus", "grafana")
    )
    pom = (ROOT / "tests" / "kafka" / "pom.xml").read_text("utf-8")
    kafka = re.search(r"<artifactId>kafka_[\d.]+</artifactId>\s*<version>([\d.]+)<", pom)[1]
    assert broker["image"] == services["topic"]["image"] == f"docker.io/apache/kafka:{kafka}"
    for service in services.values():
        assert "build" in service or re.search(r":v?\d+\.\d+\.\d+$", service["image"])
        assert set(service.get("depends_on", {})) <= set(services)
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            assert (DEPLOY / source).is_file() if source[0] == "." else source in compose["volumes"]
            assert target.startswith("/")
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
    build = ours["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert ROOT / build["dockerfile"] == DEPLOY / "Containerfile"

    # The daemon: its settings, the broker and the topic they name, its memory, its folder.
    settings = settings_of(tmp_path, **ours["environment"])
    allows(monkeypatch, int(ours["mem_limit"].removesuffix("g")) * 1024 * MIB)
    running.check(settings)
    listeners = broker["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert listeners == f"PLAINTEXT://{settings.kafka.bootstrap}"
    assert settings.kafka.bootstrap.partition(":")[0] in services
    made = services["topic"]["command"]
    assert made[made.index("--topic") + 1] == settings.kafka.topic
    port = settings.http.port
    assert ours["ports"] == [f"127.0.0.1:{port}:{port}"]
    targets = dict(volume.split(":")[1::-1] for volume in ours["volumes"])
    assert targets == {SETTINGS: "./streamlda.toml", of_image("VOLUME")[0]: "data"}
    assert float(ours["stop_grace_period"].removesuffix("s")) > signals.LATEST_EXIT_SECONDS

    # Prometheus: the daemon, its token, the rules.
    scraping = tree_of("prometheus.yaml")
    (job,) = scraping["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"streamlda:{port}"]}]
    assert job["job_name"] == re.search(r'up\{job="(\w+)"\}', read("alerts.yaml"))[1]
    secret = job["authorization"]["credentials_file"]
    assert secret == ours["environment"]["STREAMLDA_HTTP_TOKEN_FILE"] == "/run/secrets/token"
    mounted = dict(volume.split(":")[1::-1] for volume in prometheus["volumes"])
    assert {mounted[path] for path in scraping["rule_files"]} == {"./alerts.yaml"}
    assert "/etc/prometheus/prometheus.yml" in mounted, "where its image looks"

    # Grafana: Prometheus as a source, and the dashboard where the provider looks.
    (source,) = tree_of("grafana/datasource.yaml")["datasources"]
    (shown,) = prometheus["ports"]
    assert source["url"] == f"http://prometheus:{shown.rpartition(':')[2]}"
    (provider,) = tree_of("grafana/provider.yaml")["providers"]
    places = dict(volume.split(":")[:2] for volume in grafana["volumes"])
    board = Path(places["./grafana/dashboard.json"])
    assert board.parent == Path(provider["options"]["path"])
    for name, kind in (("datasource", "datasources"), ("provider", "dashboards")):
        folder = Path(places[f"./grafana/{name}.yaml"]).parent
        assert folder == Path("/etc/grafana/provisioning") / kind


def test_the_lines_of_the_page_make_the_token_of_compose(tmp_path):
    deploy = tmp_path / "streamlda/service/deploy"
    shutil.copytree(DEPLOY, deploy)
    page = (ROOT / "streamlda/docs/howto/deploy.md").read_text("utf-8")
    lines = re.search(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    shell, _, start = lines.replace("$ ", "").strip().rpartition("\n")
    assert start == "docker compose up --build"
    subprocess.run(["bash", "-euc", shell], cwd=tmp_path, check=True)
    assert (deploy / "token").stat().st_mode & 0o777 == 0o644, "its user is another"
    settings_of(tmp_path, STREAMLDA_HTTP_TOKEN_FILE=str(deploy / "token"))


# Kubernetes.


def test_the_manifest_fits_the_image_and_the_daemon(tmp_path, monkeypatch):
    service, stateful = yaml.safe_load_all(read("kubernetes.yaml"))
    pod, compose = stateful["spec"]["template"]["spec"], tree_of("compose.yaml")
    (ours,) = pod["containers"]
    assert ours["image"] == compose["services"]["streamlda"]["image"]
    labels = stateful["spec"]["template"]["metadata"]["labels"]
    assert labels == stateful["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]

    settings = settings_of(tmp_path, **{each["name"]: each["value"] for each in ours["env"]})
    limit = ours["resources"]["limits"]["memory"]
    assert ours["resources"]["requests"]["memory"] == limit, "it is not killed for others"
    allows(monkeypatch, int(limit.removesuffix("Gi")) * 1024 * MIB)
    running.check(settings)
    (port,), (shown,) = ours["ports"], service["spec"]["ports"]
    assert port["containerPort"] == settings.http.port == shown["port"]
    assert port["name"] == shown["targetPort"]
    assert pod["terminationGracePeriodSeconds"] > signals.LATEST_EXIT_SECONDS
    paths = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    for name, path in paths.items():
        assert path in PROBES
        assert ours[name]["httpGet"] == {"path": path, "port": port["name"]}

    # Its files: the settings, the token, the folder of the image and one for scratch.
    mounted = {each["mountPath"]: each["name"] for each in ours["volumeMounts"]}
    assert {Path(SETTINGS).parent, Path(of_image("VOLUME")[0]), Path("/tmp")} < {
        Path(path) for path in mounted
    }
    claims = {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    assert set(mounted.values()) == claims | {each["name"] for each in pod["volumes"]}
    assert mounted[of_image("VOLUME")[0]] in claims, "checkpoints outlive a container"


def test_the_container_of_the_manifest_may_do_little():
    _, stateful = yaml.safe_load_all(read("kubernetes.yaml"))
    pod = stateful["spec"]["template"]["spec"]
    own, container = pod["securityContext"], pod["containers"][0]["securityContext"]
    user, _, group = of_image("USER")[0].partition(":")
    assert (own["runAsUser"], own["runAsGroup"]) == (int(user), int(group))
    assert own["fsGroup"] == int(group), "it may write into its volume"
    assert own["runAsNonRoot"]
    assert own["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False


# systemd.


def unit():
    """Return the entries of the unit: each with all its values, in order."""
    found = {}
    for line in read("streamlda.service").splitlines():
        if line and line[0] not in "#[":
            name, value = line.split("=", 1)
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_never_gives_up_and_does_not_start_again_what_has_ended(tmp_path, monkeypatch):
    found = unit()
    assert found["StartLimitIntervalSec"] == ["0"]
    assert found["Restart"] == ["on-failure"]
    hopeless = {exit_codes.USAGE, exit_codes.DATA, exit_codes.CONFIGURATION}
    assert set(map(int, found["RestartPreventExitStatus"][0].split())) == hopeless
    assert int(found["TimeoutStopSec"][0]) > signals.LATEST_EXIT_SECONDS
    assert int(found["WatchdogSec"][0]) > LIVE_SECONDS
    allows(monkeypatch, int(found["MemoryMax"][0].removesuffix("G")) * 1024 * MIB)
    running.check(settings_of(tmp_path))
    variables = dict(part.split("=", 1) for part in found["Environment"][0].split())
    ours = {name: value for name, value in variables.items() if name.startswith("STREAMLDA_")}
    assert settings_of(tmp_path, **ours).log.format == "json"
    (command,) = found["ExecStart"]
    assert command.split()[1:] == ["run", "--config", SETTINGS]
