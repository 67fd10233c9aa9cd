// The controller of Kubeflow's Spark operator, without its webhooks: what these add to a driver's pod, whoever plays
// spark-submit adds.
package main

import (
	"os"

	"github.com/kubeflow/spark-operator/v2/cmd/operator/controller"
)

func main() {
	if err := controller.NewStartCommand().Execute(); err != nil {
		os.Exit(1)
	}
}
