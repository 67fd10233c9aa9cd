// A fast upstream and a load generator for benchmarks/proxy.py: both do as little as HTTP/1.1 allows, so that what is
// measured is the proxy between them.
package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	switch os.Args[1] {
	case "certificate":
		certificate(os.Args[2])
	case "upstream":
		upstream(os.Args[2])
	case "load":
		load(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "watch":
		watch(os.Args[2], os.Args[3], os.Args[4])
	}
}

// certificate writes DIR/tls.crt and DIR/tls.key: a certificate for loopback that is its own authority.
func certificate(dir string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	made, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(os.WriteFile(dir+"/tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), 0o600))
	must(os.WriteFile(dir+"/tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

func answer(size int) []byte {
	body := bytes.Repeat([]byte("x"), size)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
	return append([]byte(head), body...)
}

// upstream answers every request with 400 bytes, /big with a megabyte, and /watch with an event each 10 ms; it prints
// where it listens: plain, then with the certificate in DIR.
func upstream(dir string) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	pair, err := tls.LoadX509KeyPair(dir+"/tls.crt", dir+"/tls.key")
	must(err)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	secure, err := tls.Listen("tcp", "127.0.0.1:0", config)
	must(err)
	fmt.Println(plain.Addr(), secure.Addr())
	go accept(secure)
	accept(plain)
}

func accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		must(err)
		go serve(conn)
	}
}

var small, large = answer(400), answer(1 << 20)

func serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return
		}
		big, stream := bytes.Contains(line, []byte("/big")), bytes.Contains(line, []byte("/watch"))
		for len(bytes.TrimRight(line, "\r\n")) > 0 {
			if line, err = reader.ReadSlice('\n'); err != nil {
				return
			}
		}
		out := small
		if big {
			out = large
		}
		if stream {
			conn.Write([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
			event := bytes.Repeat([]byte("e"), 300)
			for {
				if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(event), event); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func dial(address, trusted string) net.Conn {
	if trusted == "" {
		conn, err := net.Dial("tcp", address)
		must(err)
		return conn
	}
	pem, err := os.ReadFile(trusted)
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "localhost"})
	must(err)
	return conn
}

func request(address, path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nUser-Agent: kubectl/v1.36.0 (linux/amd64)\r\n" +
		"Accept: application/json\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\r\nAccept-Encoding: gzip\r\n\r\n")
}

// load asks for a path over so many connections, so many seconds long, and prints requests, seconds and latencies.
func load(address, trusted, path, connections, seconds string) {
	count, err := strconv.Atoi(connections)
	must(err)
	spell, err := strconv.ParseFloat(seconds, 64)
	must(err)
	taken := make([][]float64, count)
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	var deadline time.Time
	for each := range taken {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			conn := dial(address, trusted)
			defer conn.Close()
			reader := bufio.NewReaderSize(conn, 64*1024)
			sent := request(address, path)
			ask := func() {
				_, err := conn.Write(sent)
				must(err)
				got, err := http.ReadResponse(reader, nil)
				must(err)
				if got.StatusCode != 200 {
					must(fmt.Errorf("status %d", got.StatusCode))
				}
				_, err = io.Copy(io.Discard, got.Body)
				must(err)
			}
			ask()
			ready.Done()
			<-begin
			for now := time.Now(); now.Before(deadline); {
				ask()
				after := time.Now()
				taken[each] = append(taken[each], after.Sub(now).Seconds())
				now = after
			}
		}()
	}
	ready.Wait()
	began := time.Now()
	deadline = began.Add(time.Duration(spell * float64(time.Second)))
	close(begin)
	done.Wait()
	took := time.Since(began).Seconds()
	var all []float64
	for _, each := range taken {
		all = append(all, each...)
	}
	sort.Float64s(all)
	json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"requests": float64(len(all)), "seconds": took,
		"p50_ms": all[len(all)/2] * 1e3, "p99_ms": all[len(all)*99/100] * 1e3,
	})
}

// watch opens so many streams and prints how many of them have brought 20 events each.
func watch(address, trusted, connections string) {
	count, err := strconv.Atoi(connections)
	must(err)
	var done sync.WaitGroup
	for range count {
		done.Add(1)
		go func() {
			defer done.Done()
			conn := dial(address, trusted)
			defer conn.Close()
			_, err := conn.Write(request(address, "/watch?watch=true"))
			must(err)
			got, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(err)
			_, err = io.ReadFull(got.Body, make([]byte, 20*300))
			must(err)
		}()
	}
	done.Wait()
	fmt.Println(count)
}
