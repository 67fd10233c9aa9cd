// The part of a kubelet that kubectl reaches through the API server: logs, exec, attach and port-forward, with the
// protocol handlers that container runtimes use. Its containers are processes of this machine, in a folder of their own
// ($HOME); their log is the file $LOG, attach talks to `cat`, a forwarded port is one of this machine's loopback.
//
// It prints the port on which it listens, and ends when its standard input does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

const (
	idle     = time.Minute
	creation = 10 * time.Second
	pollLog  = 20 * time.Millisecond
)

type node struct{ folder string }

func (n node) home(pod string) (string, error) {
	home := filepath.Join(n.folder, filepath.Base(pod))
	return home, os.MkdirAll(home, 0o700)
}

func (n node) log(pod string) string { return filepath.Join(n.folder, filepath.Base(pod)+".log") }

func (n node) ExecInContainer(ctx context.Context, pod, _, _ string, command []string, in io.Reader, out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	home, failed := n.home(pod)
	if failed != nil {
		return failed
	}
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Dir = home
	process.Env = append(os.Environ(), "HOME="+home, "LOG="+n.log(pod))
	process.WaitDelay = time.Second // a caller that keeps its standard input open does not keep the process
	process.Stdout, process.Stderr = writer(out), writer(err)
	if in != nil {
		process.Stdin = in
	}
	ended := process.Run()
	var code *exec.ExitError
	if errors.As(ended, &code) {
		return utilexec.CodeExitError{Err: ended, Code: code.ExitCode()}
	}
	return ended
}

func writer(stream io.WriteCloser) io.Writer {
	if stream == nil {
		return io.Discard
	}
	return stream
}

func (n node) AttachContainer(ctx context.Context, pod, uid, container string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return n.ExecInContainer(ctx, pod, uid, container, []string{"cat"}, in, out, err, tty, resize, 0)
}

func (n node) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	target, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer target.Close()
	go func() {
		_, _ = io.Copy(target, stream)
		_ = target.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, target)
	return err
}

func (n node) serveLog(answer http.ResponseWriter, asked *http.Request) {
	log, err := os.OpenFile(n.log(asked.PathValue("pod")), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	defer log.Close()
	for {
		if _, err := io.Copy(answer, log); err != nil || asked.FormValue("follow") != "true" {
			return
		}
		answer.(http.Flusher).Flush()
		select {
		case <-asked.Context().Done():
			return
		case <-time.After(pollLog):
		}
	}
}

func main() {
	folder, err := os.MkdirTemp("", "kubelet-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(folder)
	here := node{folder}
	paths := http.NewServeMux()
	paths.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", here.serveLog)
	paths.HandleFunc("/exec/{namespace}/{pod}/{container}", func(answer http.ResponseWriter, asked *http.Request) {
		if wanted, err := remotecommand.NewOptions(asked); err == nil {
			remotecommand.ServeExec(answer, asked, here, asked.PathValue("pod"), "", asked.PathValue("container"),
				asked.Form["command"], wanted, idle, creation, remotecommand.SupportedStreamingProtocols)
		}
	})
	paths.HandleFunc("/attach/{namespace}/{pod}/{container}", func(answer http.ResponseWriter, asked *http.Request) {
		if wanted, err := remotecommand.NewOptions(asked); err == nil {
			remotecommand.ServeAttach(answer, asked, here, asked.PathValue("pod"), "", asked.PathValue("container"),
				wanted, idle, creation, remotecommand.SupportedStreamingProtocols)
		}
	})
	paths.HandleFunc("/portForward/{namespace}/{pod}", func(answer http.ResponseWriter, asked *http.Request) {
		if wanted, err := portforward.NewV4Options(asked); err == nil {
			portforward.ServePortForward(answer, asked, here, asked.PathValue("pod"), "", wanted, idle, creation,
				portforward.SupportedProtocols)
		}
	})
	server := httptest.NewUnstartedServer(paths)
	server.StartTLS()
	fmt.Println(server.Listener.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.CloseClientConnections()
}
