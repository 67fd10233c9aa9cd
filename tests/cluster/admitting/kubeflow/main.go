// The reconcilers of Kubeflow's training operator for PyTorchJobs and TFJobs, without its webhooks, and the controller
// of its MPI operator: as their own managers set them up, in one process and without leader election.
package main

import (
	"flag"

	"github.com/go-logr/logr"
	mpijobs "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	mpi "github.com/kubeflow/mpi-operator/pkg/controller"
	training "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	trainingconfig "github.com/kubeflow/training-operator/pkg/config"
	trainingcontrollers "github.com/kubeflow/training-operator/pkg/controller.v1"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	health := flag.String("health-probe-bind-address", "", "where it says that it is ready")
	flag.Parse() // controller-runtime adds --kubeconfig
	log := zap.New()
	ctrl.SetLogger(log)
	scheme := apiruntime.NewScheme()
	must(log, clientgoscheme.AddToScheme(scheme))
	must(log, training.AddToScheme(scheme))
	must(log, mpischeme.AddToScheme(clientgoscheme.Scheme))
	config := ctrl.GetConfigOrDie()
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: *health,
	})
	must(log, err)
	trainingconfig.Config.PyTorchInitContainerImage = trainingconfig.PyTorchInitContainerImageDefault
	trainingconfig.Config.PyTorchInitContainerTemplateFile = trainingconfig.PyTorchInitContainerTemplateFileDefault
	trainingconfig.Config.PyTorchInitContainerMaxTries = trainingconfig.PyTorchInitContainerMaxTriesDefault
	for _, kind := range []string{training.PyTorchJobKind, training.TFJobKind} {
		must(log, trainingcontrollers.SupportedSchemeReconciler[kind](manager, common.GenNonGangSchedulerSetupFunc(), 1))
	}
	must(log, manager.AddReadyzCheck("readyz", healthz.Ping))
	ctx := ctrl.SetupSignalHandler()
	go controlMPIJobs(log, config, ctx.Done())
	must(log, manager.Start(ctx))
}

func controlMPIJobs(log logr.Logger, config *rest.Config, stop <-chan struct{}) {
	client, err := kubernetes.NewForConfig(config)
	must(log, err)
	jobs, err := mpijobs.NewForConfig(config)
	must(log, err)
	core, own := informers.NewSharedInformerFactory(client, 0), mpiinformers.NewSharedInformerFactory(jobs, 0)
	controller, err := mpi.NewMPIJobController(
		client, jobs, nil, nil,
		core.Core().V1().ConfigMaps(), core.Core().V1().Secrets(), core.Core().V1().Services(),
		core.Batch().V1().Jobs(), core.Core().V1().Pods(), core.Scheduling().V1().PriorityClasses(),
		own.Kubeflow().V2beta1().MPIJobs(), "", "",
	)
	must(log, err)
	core.Start(stop)
	own.Start(stop)
	must(log, controller.Run(2, stop))
}

func must(log logr.Logger, err error) {
	if err != nil {
		log.Error(err, "the manager ends")
		panic(err)
	}
}
