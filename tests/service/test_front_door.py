"""What the pages tell an operator to run, as it stands, against a broker, until the page is open.

The port of a line is the one that is used if it is free here, else another.
"""

import json
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import yaml

from streamlda.simulate import PlantedLDA
from tests.kafka.broker import LOGGING, Apache, Broker, free_ports
from tests.kafka.jars import FETCH_SECONDS, PLUGIN, java, kafka_jars, kafka_version, program
from tests.kafka.topics import Topics, wait_until
from tests.service.daemon_process import environment

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "streamlda" / "service" / "deploy"
TOPIC = "documents"
#: A snapshot is due after 20,000.
N_DOCUMENTS = 21_000


def blocks(page, language):
    text = (ROOT / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page):
    """Return the lines of a page that start a daemon, or ask it."""
    lines = "".join(blocks(page, "console")).splitlines()
    return [line.removeprefix("$ ") for line in lines if line.startswith(("$ streamlda", "$ curl"))]


def documents(n):
    """Return records of JSON; words are of letters, since numbers are no words."""
    letters = str.maketrans("0123456789", "abcdefghij")
    texts = PlantedLDA(3, 60, mean_length=15, seed=0).texts(n)
    return [json.dumps({"text": text.translate(letters)}).encode() for text in texts]


@pytest.fixture(scope="module")
def filled(own_topics):
    own_topics.fill(TOPIC, documents(N_DOCUMENTS))
    yield own_topics.bootstrap
    own_topics.admin.delete_topics([TOPIC])


def free_or_another(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return free_ports(1)[0]
    return port


def pump(source, target):
    """Pass on what comes from either of two sockets, until one is closed."""
    with source, target:
        ends = {source: target, target: source}
        while True:
            for ready in select.select(list(ends), [], [])[0]:
                chunk = ready.recv(2**16)
                if not chunk:
                    return
                ends[ready].sendall(chunk)


@contextmanager
def forwarded(port, bootstrap):
    """Pass connections to a port on to a broker, whose answers then name its own address."""
    host, _, behind = bootstrap.rpartition(":")
    with socket.create_server(("127.0.0.1", port)) as server:
        pumps = []

        def accept():
            while True:
                try:
                    source, _ = server.accept()
                except OSError:
                    return
                target = socket.create_connection((host, int(behind)))
                pumps.append(threading.Thread(target=pump, args=(source, target)))
                pumps[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join(10)
            for each in pumps:
                each.join(10)


@contextmanager
def running(command, folder, **variables):
    """Run a line of shell as a service manager would, and end it by SIGTERM."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=environment(PATH=path, **variables),
            stderr=log,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (folder / "log").read_text()
        finally:
            process.kill()
            process.wait(30)


def wait_for_topics(browser, address, token=None):
    """Open the page of a daemon, and wait until it shows topics; returns how many."""
    with closing(browser.new_page()) as page:
        page.goto(address)
        if token is not None:
            page.locator("#token").fill(token)
            page.get_by_role("button", name="Open").click()
        cards = page.locator("#cards .card")
        cards.first.wait_for(timeout=120_000)
        return cards.count()


def wait_for_page(port):
    def opens():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    wait_until(opens, 60)


@pytest.mark.parametrize("name", ["README.md", "streamlda/docs/howto/deploy.md"])
def test_the_lines_of_a_page_start_a_daemon_and_its_page_is_open(name, filled, tmp_path, browser):
    (run, *ask), settings = commands(name), "".join(blocks(name, "toml"))
    kafka, http = (free_or_another(port) for port in (9092, 8080))
    used = {"localhost:9092": f"localhost:{kafka}", "localhost:8080": f"localhost:{http}"}
    for usual, ours in used.items():
        run, settings = run.replace(usual, ours), settings.replace(usual, ours)
        ask = [line.replace(usual, ours) for line in ask]
    (tmp_path / "streamlda.toml").write_text(settings, "utf-8")
    with forwarded(kafka, filled), running(run, tmp_path, STREAMLDA_HTTP_PORT=str(http)):
        wait_for_page(http)
        assert wait_for_topics(browser, f"http://localhost:{http}") > 0
        for line in ask:
            done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
            snapshot = json.loads(done.stdout)
            assert snapshot["number"] == 1
            assert snapshot["topics"][0]["words"]
    assert list((tmp_path / "snapshots").iterdir())


# Compose, without containers: its broker, its topic, its settings and variables, its page.


class ComposeBroker(Apache):
    """The broker of a compose file: variables are properties, as its image takes them."""

    def __init__(self, folder, variables):
        Broker.__init__(self, folder)
        self._java, self._class_path = java(), f"{kafka_jars()}/*"
        plain, controller = self.bootstrap.rpartition(":")[2], free_ports(1)[0]
        here = {
            "broker:9092": self.bootstrap,
            "//:9092": f"//{self.bootstrap}",
            "//:9093": f"//127.0.0.1:{controller}",
            "@localhost:9093": f"@127.0.0.1:{controller}",
            "/var/lib/kafka/data": str(folder / "data"),
        }
        lines = []
        for name, value in variables.items():
            for there, ours in here.items():
                value = value.replace(there, ours)
            lines.append(f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n")
        assert plain in "".join(lines)
        (folder / "log4j.properties").write_text(LOGGING)
        (folder / "server.properties").write_text("".join(lines))
        self._format()


@pytest.mark.real_broker
def test_what_compose_starts_works_together_and_its_page_is_open(tmp_path, browser):
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    folder = tmp_path / "broker"
    folder.mkdir()
    broker = ComposeBroker(folder, services["broker"]["environment"])
    with ExitStack() as stack:
        stack.callback(broker.remove)
        broker.start()
        with closing(Topics(broker.bootstrap)) as topics:
            made = services["topic"]["command"]
            topic = made[made.index("--topic") + 1]
            topics.make(topic, int(made[made.index("--partitions") + 1]))
            topics.send(topic, documents(3000))
        deploy = tmp_path / "streamlda/service/deploy"
        shutil.copytree(DEPLOY, deploy)
        lines, *_ = blocks("streamlda/docs/howto/deploy.md", "console")
        shell, _, start = lines.replace("$ ", "").strip().rpartition("\n")
        assert start == "docker compose up --build"
        subprocess.run(["bash", "-euc", shell], cwd=tmp_path, check=True)
        assert (deploy / "token").stat().st_mode & 0o777 == 0o644
        token = (deploy / "token").read_text("ascii").strip()
        port = free_ports(1)[0]
        variables = services["streamlda"]["environment"] | {
            "STREAMLDA_KAFKA_BOOTSTRAP": broker.bootstrap,
            "STREAMLDA_HTTP_TOKEN_FILE": str(deploy / "token"),
            "STREAMLDA_HTTP_PORT": str(port),
            "STREAMLDA_SNAPSHOTS_EVERY": "3000",
        }
        (start,) = re.findall(r"^ENTRYPOINT (.*)$", (DEPLOY / "Containerfile").read_text(), re.M)
        command = shlex.join(json.loads(start))
        run = command.replace("/etc/streamlda/streamlda.toml", str(deploy / "streamlda.toml"))
        with running(run, tmp_path, **variables):
            wait_for_page(port)
            assert wait_for_topics(browser, f"http://localhost:{port}", token) > 0


#: What the programs of Kafka's image run, and the archive with it.
KAFKA_TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
}


@pytest.fixture(scope="module")
def kafka_tools(tmp_path_factory):
    """Run a command of Kafka's image; its classes come from Maven."""
    folder = tmp_path_factory.mktemp("tools")
    artifact = f"-Dartifact=org.apache.kafka:kafka-tools:{kafka_version()}"
    copy = [f"{PLUGIN.rpartition(':')[0]}:copy", artifact, f"-DoutputDirectory={folder}"]
    subprocess.run([program("mvn"), "-q", "-B", *copy], check=True, timeout=FETCH_SECONDS)

    def run(command, **options):
        name, *arguments = command
        path = f"{folder}/*{os.pathsep}{kafka_jars()}/*"
        line = [java(), "-cp", path, KAFKA_TOOLS[Path(name).name], *arguments]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.packaging
def test_the_commands_of_compose_for_its_broker_run(own_topics, topic, kafka_tools, tmp_path):
    """The check of its health, the one that makes the topic, and the one that sends a file."""
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    services = yaml.safe_load(text)["services"]
    comment = re.sub(r"(?m)^#", "", text[: text.index("\nname:")])
    (send,) = re.findall(r"docker compose exec -T broker (.*?) < ", comment.replace("\\\n", " "))
    here = {"broker:9092": own_topics.bootstrap, TOPIC: topic}
    kind, *healthy = services["broker"]["healthcheck"]["test"]
    assert kind == "CMD"
    check, make, send = (
        [here.get(word, word) for word in command]
        for command in (healthy, services["topic"]["command"], shlex.split(send))
    )
    assert own_topics.bootstrap in kafka_tools(check)
    for _ in range(2):
        # The service runs at each start.
        kafka_tools(make)
    assert topic in own_topics.admin.list_topics()
    records = documents(5)
    (tmp_path / "documents.jsonl").write_bytes(b"".join(record + b"\n" for record in records))
    with (tmp_path / "documents.jsonl").open("rb") as file:
        kafka_tools(send, stdin=file)
    assert [record.value for record in own_topics.read(topic)] == records
