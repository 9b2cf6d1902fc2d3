// kfake of franz-go as a process: a broker in memory on one loopback port, for machines that
// cannot have Apache Kafka. `kfake PORT` serves until SIGTERM.
package main

import (
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatalf("one argument is wanted, the port, got n=%d", len(os.Args)-1)
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatalf("the port must be a number: %v", err)
	}
	// From version 5 the answer about a made topic shows its settings, in a way that kafka-python
	// cannot read.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.CreateTopics.Int16(), 4)
	// The same settings as PROPERTIES in tests/kafka/broker.py, as far as kfake has them.
	cluster, err := kfake.NewCluster(
		kfake.Ports(port),
		kfake.DefaultNumPartitions(1),
		kfake.AllowAutoTopicCreation(),
		kfake.MaxVersions(versions),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": "71303168"}),
	)
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	cluster.Close()
}
