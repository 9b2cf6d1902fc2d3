"""A broker as a process of its own: one node, loopback, free ports, ended by its process id."""

import shutil
import signal
import socket
import subprocess
import time
from contextlib import closing, contextmanager

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tests.kafka.jars import BrokerUnavailable, kafka_jars, keytool, program

START_SECONDS = 300.0

#: A broker that its controller, in the same process, does not hear of for so long is fenced: nobody
#: makes a topic. A busy machine keeps heartbeats for seconds; one that was killed starts after it.
SESSION_SECONDS = 6.0
USER, PASSWORD = "reader", "only for tests"

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},\
LOGIN://127.0.0.1:{login},RELAYED://127.0.0.1:{relayed},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},\
LOGIN://127.0.0.1:{login},RELAYED://127.0.0.1:{relay}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,\
LOGIN:SASL_PLAINTEXT,RELAYED:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.login.sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
listener.name.login.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.login.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="broker";
listener.name.secure.ssl.keystore.type=PKCS12
listener.name.secure.ssl.keystore.location={folder}/keys.p12
listener.name.secure.ssl.keystore.password={password}
listener.name.secure.ssl.key.password={password}
log.dirs={folder}/data
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms={session}
broker.heartbeat.interval.ms=300
message.max.bytes=71303168
"""

LOGGING = """\
log4j.rootLogger=WARN,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.SimpleLayout
"""


def free_ports(count):
    """Return ports that no other program is given until this one ends.

    Of a socket that is bound and does not listen, Linux gives the port to servers that name it
    (all of them set SO_REUSEADDR), and to nobody who takes any port.
    """
    ports = []
    for _ in range(count):
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        ports.append(kept.getsockname()[1])
        kept.detach()
    return ports


class Broker:
    """Apache Kafka, also by TLS and logins; ports and data stay over restarts."""

    def __init__(self, folder):
        self.folder, self.data = folder, folder / "data"
        self.certificate = folder / "broker.pem"
        self._java = program("java")
        self._class_path = f"{kafka_jars()}/*"
        self._process = None
        names = ("plain", "secure", "login", "relayed", "controller", "relay")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.bootstrap = f"127.0.0.1:{ports['plain']}"
        self.secure_bootstrap = f"127.0.0.1:{ports['secure']}"
        self.login_bootstrap = f"127.0.0.1:{ports['login']}"
        #: Says that it is at `relay_port`, where nothing listens but what a test puts there.
        self.relayed_bootstrap = f"127.0.0.1:{ports['relayed']}"
        self.relay_port = ports["relay"]
        (folder / "log4j.properties").write_text(LOGGING)
        values = {"folder": folder, "user": USER, "password": PASSWORD}
        values["session"] = int(1000 * SESSION_SECONDS)
        properties = PROPERTIES.format(**values, **ports)
        (folder / "server.properties").write_text(properties)
        self._make_keys()
        self._format()

    def start(self):
        with (self.folder / "broker.log").open("ab") as output:
            # In a session of its own, so that Ctrl-C leaves it to who started it to end it.
            command = [*self._main("kafka.Kafka"), str(self.folder / "server.properties")]
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )
        self._wait()

    def _wait(self):
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                log = (self.folder / "broker.log").read_text(errors="replace")
                raise BrokerUnavailable(
                    f"the broker must answer within {START_SECONDS} s, got rc={code}: {log[-2000:]}"
                )
            time.sleep(0.1)

    def _answers(self):
        options = {"bootstrap_servers": self.bootstrap, "bootstrap_timeout_ms": 1000}
        try:
            with closing(KafkaAdminClient(**options)) as admin:
                return any(not each["is_fenced"] for each in admin.describe_cluster()["brokers"])
        except (OSError, KafkaError):
            return False

    @property
    def runs(self):
        return self._process is not None

    @contextmanager
    def stopped(self):
        """Stop it, and let it continue behind: its connections stay."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
            self._wait()

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_SECONDS)
            self._process = None

    def _main(self, name):
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = f"-Dlog4j.configuration=file:{self.folder}/log4j.properties"
        return [self._java, *options, logging, "-cp", self._class_path, name]

    def _make_keys(self):
        store = ["-keystore", str(self.folder / "keys.p12"), "-storepass", PASSWORD]
        names = ["-alias", "broker", "-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1"]
        make = ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", "-validity", "2"]
        show = ["-exportcert", "-rfc", "-alias", "broker", "-file", str(self.certificate)]
        tool = keytool(self._java)
        for arguments in ([*make, *names], show):
            subprocess.run(
                [tool, *arguments, *store], check=True, capture_output=True, timeout=START_SECONDS
            )

    def _format(self):
        tool = "kafka.tools.StorageTool"
        arguments = ["format", "--cluster-id=MkU3OEVBNTcwNTJENDM2Qk"]
        config = ["-c", str(self.folder / "server.properties")]
        command = [*self._main(tool), *arguments, *config]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        if done.returncode:
            raise BrokerUnavailable(f"{tool} must succeed, got {done.stdout}{done.stderr}")


@contextmanager
def broker_in(folder):
    broker = Broker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
