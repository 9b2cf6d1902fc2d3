"""A real Apache Kafka broker: one node, loopback, free ports, ended by its process id."""

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.kafka.jars import BrokerUnavailable, kafka_jars, program

START_SECONDS = 60.0
USER, PASSWORD = "reader", "only for tests"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.secure.ssl.keystore.type=PKCS12
listener.name.secure.ssl.keystore.location={folder}/keys.p12
listener.name.secure.ssl.keystore.password={password}
listener.name.secure.ssl.key.password={password}
log.dirs={folder}/data
auto.create.topics.enable=true
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
message.max.bytes=20971520
"""

LOGGING = """\
log4j.rootLogger=WARN,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.SimpleLayout
"""


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in taken]
    for server in taken:
        server.close()
    return ports


class Broker:
    """One broker with its own folder; ports and data stay the same over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.certificate = folder / "broker.pem"
        self._java = program("java")
        self._class_path = f"{kafka_jars()}/*"
        self._process: subprocess.Popen[bytes] | None = None
        plain, secure, controller = free_ports(3)
        self.bootstrap = f"127.0.0.1:{plain}"
        self.secure_bootstrap = f"127.0.0.1:{secure}"
        (folder / "log4j.properties").write_text(LOGGING)
        (folder / "server.properties").write_text(
            PROPERTIES.format(
                plain=plain,
                secure=secure,
                controller=controller,
                folder=folder,
                user=USER,
                password=PASSWORD,
            )
        )
        self._make_keys()
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
        # A leading dash would be read as an option.
        self._run("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}")

    def _make_keys(self) -> None:
        keytool = Path(os.path.realpath(self._java)).with_name("keytool")
        tool = str(keytool) if keytool.exists() else program("keytool")
        store = ["-keystore", str(self.folder / "keys.p12"), "-storepass", PASSWORD]
        names = ["-alias", "broker", "-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1"]
        make = ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", "-validity", "2"]
        show = ["-exportcert", "-rfc", "-alias", "broker", "-file", str(self.certificate)]
        for arguments in ([*make, *names], show):
            subprocess.run([tool, *arguments, *store], check=True, capture_output=True, timeout=60)

    def _command(self, main: str) -> list[str]:
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = f"-Dlog4j.configuration=file:{self.folder}/log4j.properties"
        return [self._java, *options, logging, "-cp", self._class_path, main]

    def _run(self, main: str, *arguments: str) -> None:
        config = ["-c", str(self.folder / "server.properties")]
        command = [*self._command(main), *arguments, *config]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise BrokerUnavailable(f"{main} must succeed, got {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start, and wait until it answers."""
        log = self.folder / "broker.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command("kafka.Kafka"), str(self.folder / "server.properties")],
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerUnavailable(
                    f"the broker must start within {START_SECONDS} s, got "
                    f"rc={self._process and self._process.returncode}: "
                    f"{log.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.1)

    def _answers(self) -> bool:
        host, port = self.bootstrap.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            admin = KafkaAdminClient(bootstrap_servers=self.bootstrap, bootstrap_timeout_ms=1000)
        except (OSError, KafkaError):
            return False
        admin.close()
        return True

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
