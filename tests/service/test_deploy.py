"""Files to deploy with: what they name is there, and what they ask for is what the daemon gives."""

import json
import re
import tomllib
from pathlib import Path
from urllib.error import HTTPError

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from streamlda.service import running
from streamlda.service.machine import Phase
from streamlda.service.metrics import Metrics
from streamlda.service.status import FAILURES, LIVE_SECONDS, OUTCOMES, STALLABLE
from streamlda.settings.load import load_settings
from tests.service.planted import outcomes

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "streamlda" / "service" / "deploy"

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


def read_text(name):
    return (DEPLOY / name).read_text("utf-8")


ALERTS = [
    rule for group in yaml.safe_load(read_text("alerts.yaml"))["groups"] for rule in group["rules"]
]
BOARD = json.loads(read_text("grafana/dashboard.json"))


def expressions():
    found = {rule["alert"]: rule["expr"] for rule in ALERTS}
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            name = f"{panel['title']} {target['refId']}"
            found[name] = target["expr"].replace("$__rate_interval", "5m")
    for variable in BOARD["templating"]["list"][1:]:
        query = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        found[variable["name"]] = f"count by ({query[2]}) ({query[1]})"
    return found


#: A series: the function around it, its name, and its matchers.
SERIES = re.compile(r"(\w*)\(?(streamlda_\w+|up)\b(?:{([^}]*)})?")


def test_what_rules_and_dashboard_ask_for_is_exported(status):
    status.note(documents=outcomes(), rejects={}, releases=0)
    status.note(rounds=1)
    status.note(documents=outcomes(learned=1), rejects={"not-json": 1}, releases=1)
    status.count("dead_letters", "not-json")
    status.count_failure("source", "away")
    status.note(resident_bytes=1)
    families = list(text_string_to_metric_families(Metrics(status).text().decode()))
    assert [family.name for family in families if not family.samples] == []
    samples = [(family.type, sample) for family in families for sample in family.samples]
    exported = OWN | {each.name: (kind, set(each.labels) | ADDED) for kind, each in samples}
    for name, text in expressions().items():
        promql.parse(text)
        found = SERIES.findall(text)
        assert found, name
        selected = set()
        for function, series, matchers in found:
            kind, labels = exported[series]
            for label, value in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                assert label in labels
                assert value in VALUES.get(label, {value})
            selected |= labels
            counts = function in ("rate", "increase")
            assert counts == (kind == "counter"), f"{name}: {series} is a {kind}"
        for labels in re.findall(r"(?:by|on|ignoring) ?\(([^)]*)\)", text):
            assert {*re.findall(r"\w+", labels)} <= selected, name


def shipped():
    return load_settings(DEPLOY / "streamlda.toml", environment={}, flags={})


def test_the_settings_are_taken_also_what_is_commented_out(tmp_path):
    running.check(shipped())
    text = re.sub(r"^#(?=[a-z\[])", "", read_text("streamlda.toml"), flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(text)
    assert {"privacy", "memory"} <= {*tomllib.loads(text)} - {
        *tomllib.loads(read_text("streamlda.toml"))
    }
    load_settings(tmp_path / "all.toml", environment={}, flags={})


def test_the_health_check_asks_whether_the_loop_goes_round(serve, status, monkeypatch):
    # A proxy of the host, which containers may be given, would find no daemon.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    (health,) = re.findall(
        r"(?m)^HEALTHCHECK.*CMD (.*)", read_text("Containerfile").replace("\\\n", " ")
    )
    *_, check = json.loads(health)
    port = f":{shipped().http.port}/"
    assert port in check
    check = check.replace(port, f":{serve(host='0.0.0.0', token='secret').port}/")
    exec(check)
    status._clock = lambda: LIVE_SECONDS
    with pytest.raises(HTTPError, match="503"):
        exec(check)
