// An operator as controller-runtime makes them, with one worker: each ConfigMap with the label "app" wants a pod of its
// name. A ConfigMap that is deleted takes its pod with it, by a finalizer: so the worker that waits in a create is the
// one that would free the room.
//
// Each line of the output is a JSON object: "what" ("started", "created", "deleted", "failed"), "name", "took" in
// seconds, and the error.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "example.dev/pod"

type line struct {
	What  string  `json:"what"`
	Name  string  `json:"name,omitempty"`
	Took  float64 `json:"took,omitempty"`
	Error string  `json:"error,omitempty"`
}

var out = json.NewEncoder(os.Stdout) // one worker: nobody else writes

func say(what, name string, began time.Time, err error) {
	said := line{What: what, Name: name, Took: time.Since(began).Seconds()}
	if err != nil {
		said.What, said.Error = "failed", err.Error()
	}
	if err := out.Encode(said); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var wanted corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &wanted); err != nil || wanted.Labels["app"] == "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: wanted.Name, Namespace: wanted.Namespace}}
	began := time.Now()
	if !wanted.DeletionTimestamp.IsZero() {
		err := client.IgnoreNotFound(r.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		say("deleted", pod.Name, began, err)
		if err == nil && controllerutil.RemoveFinalizer(&wanted, finalizer) {
			err = r.Update(ctx, &wanted)
		}
		return ctrl.Result{}, err
	}
	if controllerutil.AddFinalizer(&wanted, finalizer) {
		if err := r.Update(ctx, &wanted); err != nil {
			return ctrl.Result{}, err
		}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.invalid/none"}}
	began = time.Now()
	err := r.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, nil
	}
	say("created", pod.Name, began, err)
	return ctrl.Result{}, err
}

func run(namespace string) error {
	config, err := ctrl.GetConfig() // -kubeconfig
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
		Logger:  klog.Background(),
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).Complete(reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	say("started", "", time.Now(), nil)
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	namespace := flag.String("namespace", "default", "whose ConfigMaps it follows")
	flag.Parse()
	if err := run(*namespace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
