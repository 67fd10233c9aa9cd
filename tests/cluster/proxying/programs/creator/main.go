// A creator as Go programs are: a typed client that speaks protobuf, client-go's own retries, and an informer that
// follows what was made.
//
// Each line of the output is a JSON object with a "what": "synced", "created" (with the name and the seconds it took),
// "failed" (the error that the caller sees), "seen" (the informer was told of a pod), "done" at the end. The program
// exits with 0 once all pods are created and seen.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type line struct {
	What    string  `json:"what"`
	Name    string  `json:"name,omitempty"`
	Uid     string  `json:"uid,omitempty"`
	Took    float64 `json:"took,omitempty"`
	Code    int32   `json:"code,omitempty"`
	Reason  string  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	After   int32   `json:"retry_after,omitempty"`
}

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

func main() {
	var (
		kubeconfig = flag.String("kubeconfig", "", "where the API server, or what stands before it, is")
		namespace  = flag.String("namespace", "default", "where the pods go")
		prefix     = flag.String("prefix", "pod-", "what the names begin with")
		fixed      = flag.Bool("fixed", false, "names are ours, not generateName's")
		count      = flag.Int("count", 1, "how many pods")
		parallel   = flag.Int("parallel", 1, "how many creates at a time")
		content    = flag.String("content", "application/vnd.kubernetes.protobuf", "the content type that is sent")
		patience   = flag.Duration("patience", 0, "the client's time limit for a request; 0: none")
		tries      = flag.Int("tries", 1, "how often a pod is asked for, at most")
		pause      = flag.Duration("pause", time.Second, "between two tries")
	)
	flag.Parse()
	out := &printer{json: json.NewEncoder(os.Stdout)}
	if err := run(out, *kubeconfig, *content, *patience, *namespace, func(ctx context.Context, client kubernetes.Interface) error {
		return createAll(ctx, out, client, *namespace, *prefix, *fixed, *count, *parallel, *tries, *pause)
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out.say(line{What: "done"})
}

func run(out *printer, kubeconfig, content string, patience time.Duration, namespace string, do func(context.Context, kubernetes.Interface) error) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = content
	config.AcceptContentTypes = content + ",application/json"
	config.QPS, config.Burst = 500, 1000
	follower, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	config.Timeout = patience
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(follower, 0, informers.WithNamespace(namespace))
	pods := factory.Core().V1().Pods().Informer()
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(found any) {
		out.say(line{What: "seen", Name: found.(*corev1.Pod).Name})
	}}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return errors.New("the informer never synced")
	}
	out.say(line{What: "synced"})
	if err := do(ctx, client); err != nil {
		return err
	}
	return nil
}

func createAll(ctx context.Context, out *printer, client kubernetes.Interface, namespace, prefix string, fixed bool, count, parallel, tries int, pause time.Duration) error {
	numbers := make(chan int)
	var workers sync.WaitGroup
	var lock sync.Mutex
	var failed error
	for range parallel {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for number := range numbers {
				if err := createOne(ctx, out, client, namespace, meta(prefix, fixed, number), tries, pause); err != nil {
					lock.Lock()
					failed = err
					lock.Unlock()
				}
			}
		}()
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
	return failed
}

func meta(prefix string, fixed bool, number int) metav1.ObjectMeta {
	if fixed {
		return metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", prefix, number)}
	}
	return metav1.ObjectMeta{GenerateName: prefix}
}

func createOne(ctx context.Context, out *printer, client kubernetes.Interface, namespace string, meta metav1.ObjectMeta, tries int, pause time.Duration) error {
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "example.invalid/none"}}, RestartPolicy: corev1.RestartPolicyNever,
	}}
	var last error
	for try := range tries {
		if try > 0 {
			time.Sleep(pause)
		}
		began := time.Now()
		made, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		took := time.Since(began).Seconds()
		if err == nil {
			out.say(line{What: "created", Name: made.Name, Uid: string(made.UID), Took: took})
			return nil
		}
		last = err
		said := line{What: "failed", Took: took, Message: err.Error()}
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			said.Code, said.Reason = status.Status().Code, string(status.Status().Reason)
			if details := status.Status().Details; details != nil {
				said.After = details.RetryAfterSeconds
			}
		} else if wait.Interrupted(err) {
			said.Reason = "Interrupted"
		}
		out.say(said)
	}
	return last
}
