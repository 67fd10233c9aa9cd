// The reconcilers of Kubeflow's Trainer, as its own manager sets them up, without its webhooks: those only validate,
// and take their certificates from a folder that all programs of a machine share.
package main

import (
	"flag"

	"github.com/go-logr/logr"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/controller"
	"github.com/kubeflow/trainer/v2/pkg/runtime/core"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlpkg "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	podgroups "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

func main() {
	health := flag.String("health-probe-bind-address", "", "where it says that it is ready")
	flag.Parse() // controller-runtime adds --kubeconfig
	log := zap.New()
	ctrl.SetLogger(log)
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{
		clientgoscheme.AddToScheme, trainer.AddToScheme, jobset.AddToScheme, podgroups.AddToScheme,
	} {
		must(log, add(scheme))
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
	})
	must(log, err)
	ctx := ctrl.SetupSignalHandler()
	runtimes, err := core.New(ctx, manager.GetClient(), manager.GetFieldIndexer())
	must(log, err)
	_, err = controller.SetupControllers(manager, runtimes, ctrlpkg.Options{})
	must(log, err)
	must(log, manager.AddReadyzCheck("readyz", healthz.Ping))
	must(log, manager.Start(ctx))
}

func must(log logr.Logger, err error) {
	if err != nil {
		log.Error(err, "the manager ends")
		panic(err)
	}
}
