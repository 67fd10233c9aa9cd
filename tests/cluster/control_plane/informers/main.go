// Two shared informers of client-go, pods and resourcequotas of one namespace, that print what they are told.
//
// Each line of the output is a JSON object with a "what": "request" (what was sent, and how it was answered),
// "synced", "add", "update", "delete", or "lost" (a watch that ended with an error). The program ends when its
// standard input ends, or after -for.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// A line of the output; fields that do not matter for a "what" are left out.
type line struct {
	What     string            `json:"what"`
	Resource string            `json:"resource,omitempty"`
	Name     string            `json:"name,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Phase    string            `json:"phase,omitempty"`
	Used     map[string]string `json:"used,omitempty"`
	Going    bool              `json:"going,omitempty"`   // the object has a deletionTimestamp
	Initial  bool              `json:"initial,omitempty"` // an add that belongs to the first list
	Again    bool              `json:"again,omitempty"`   // an update to the version that was known: a relist
	Guessed  bool              `json:"guessed,omitempty"` // a delete found out by a relist
	Verb     string            `json:"verb,omitempty"`    // of a request: list, watch, or stream (sendInitialEvents)
	Code     int               `json:"code,omitempty"`
	Reason   string            `json:"reason,omitempty"`
}

// A printer writes whole lines, whichever informer speaks.
type printer struct {
	lock sync.Mutex
	json *json.Encoder
}

func (p *printer) say(said line) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if err := p.json.Encode(said); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

// seen is a round tripper that says which lists and watches were sent.
type seen struct {
	next http.RoundTripper
	out  *printer
}

func (s *seen) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(request)
	query, path := request.URL.Query(), strings.Split(request.URL.Path, "/")
	said := line{What: "request", Resource: path[len(path)-1], Verb: "list"}
	if query.Get("watch") != "" {
		said.Verb = "watch"
	}
	if query.Get("sendInitialEvents") != "" {
		said.Verb = "stream"
	}
	if err == nil {
		said.Code = answer.StatusCode
	}
	s.out.say(said)
	return answer, err
}

func describe(what, resource string, object metav1.Object) line {
	said := line{What: what, Resource: resource, Name: object.GetName(), Labels: object.GetLabels(),
		Going: object.GetDeletionTimestamp() != nil}
	switch typed := object.(type) {
	case *corev1.Pod:
		said.Phase = string(typed.Status.Phase)
	case *corev1.ResourceQuota:
		said.Used = map[string]string{}
		for name, amount := range typed.Status.Used {
			said.Used[string(name)] = amount.String()
		}
	}
	return said
}

func follow(informer cache.SharedIndexInformer, resource string, out *printer) (cache.InformerSynced, error) {
	err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		reason := string(apierrors.ReasonForError(err))
		if reason == "" && err == io.EOF {
			reason = "EOF"
		}
		out.say(line{What: "lost", Resource: resource, Reason: reason})
	})
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			said := describe("add", resource, object.(metav1.Object))
			said.Initial = initial
			out.say(said)
		},
		UpdateFunc: func(before, after any) {
			said := describe("update", resource, after.(metav1.Object))
			said.Again = before.(metav1.Object).GetResourceVersion() == after.(metav1.Object).GetResourceVersion()
			out.say(said)
		},
		DeleteFunc: func(object any) {
			unknown, guessed := object.(cache.DeletedFinalStateUnknown)
			if guessed {
				object = unknown.Obj
			}
			said := describe("delete", resource, object.(metav1.Object))
			said.Guessed = guessed
			out.say(said)
		},
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

func run(kubeconfig, server, namespace string, limit time.Duration) error {
	out := &printer{json: json.NewEncoder(os.Stdout)}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	if server != "" {
		config.Host = server
	}
	config.ContentType = "application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &seen{next: next, out: out} })
	config.RateLimiter = nil
	config.QPS = -1
	client, err := kubernetes.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	pods, err := follow(factory.Core().V1().Pods().Informer(), "pods", out)
	if err != nil {
		return err
	}
	quotas, err := follow(factory.Core().V1().ResourceQuotas().Informer(), "resourcequotas", out)
	if err != nil {
		return err
	}

	stop := make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(stop) }) }
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	time.AfterFunc(limit, end)
	factory.Start(stop)
	if cache.WaitForCacheSync(stop, pods, quotas) {
		out.say(line{What: "synced"})
	}
	<-stop
	factory.Shutdown()
	return nil
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	server := flag.String("server", "", "another address of the same server")
	namespace := flag.String("namespace", "default", "whose pods and quotas to follow")
	limit := flag.Duration("for", 30*time.Second, "end after this time at the latest")
	flag.Parse()
	if err := run(*kubeconfig, *server, *namespace, *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
