package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/converter"

	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

const (
	// codecListenDefault is next to the development server's Web UI.
	codecListenDefault = "127.0.0.1:8234"
	// maxCodecBody is above what an event of a history can hold, in base64.
	maxCodecBody = 16 << 20
	// codecStop is how long requests under way may take when the server is asked to stop.
	codecStop = 5 * time.Second
)

func (a *app) codecCommand() *cobra.Command {
	var listen string
	var origins []string
	var remote bool
	command := &cobra.Command{
		Use:   "codec",
		Short: "Decrypt payloads for Temporal's Web UI and command line, until SIGTERM",
		Long: `Decrypt payloads for Temporal's Web UI and command line, until SIGTERM, with the keys of the file that ` + codec.KeysVariable + `
names; and encrypt what the Web UI's dialogs send. It asks nobody who they are: whoever reaches it reads what is encrypted.

Pages of the origins that are given may use it, and programs that are no browser, such as temporal workflow show
--codec-endpoint. It needs no database and no Temporal server. docs/privacy.md tells how to point the Web UI at it.`,
		Args: nothing,
	}
	command.Flags().StringVar(&listen, "listen", codecListenDefault, "host:port to listen on; port 0 means a free one")
	command.Flags().StringArrayVar(&origins, "origin", nil,
		"a Web UI's address as the browser shows it, such as http://localhost:8233; may be given more than once")
	command.Flags().BoolVar(&remote, "allow-remote", false,
		"listen beyond this machine: for a network where everybody may read everything, or behind a proxy that asks who it is")
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		var mistakes []error
		if _, _, err := net.SplitHostPort(listen); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--listen must be host:port, such as %s, not %q", codecListenDefault, listen))
		}
		for _, origin := range origins {
			mistakes = append(mistakes, checkOrigin(origin))
		}
		keys, err := loadCodecKeys(a.getenv)
		if err := errors.Join(append(mistakes, err)...); err != nil {
			return usagef("%w", err)
		}
		return a.serveCodec(cmd.Context(), codec.New(keys), listen, origins, remote)
	}
	return command
}

func loadCodecKeys(getenv func(string) string) (*codec.Keys, error) {
	path := getenv(codec.KeysVariable)
	if path == "" {
		return nil, fmt.Errorf("%s is missing: set it to the path of the file with the keys", codec.KeysVariable)
	}
	return codec.LoadKeys(path)
}

// checkOrigin refuses what no browser sends as an origin: it would never match.
func checkOrigin(origin string) error {
	parsed, err := url.Parse(origin)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" ||
		origin != parsed.Scheme+"://"+parsed.Host {
		return fmt.Errorf("--origin must be scheme://host or scheme://host:port and nothing more, such as http://localhost:8233, "+
			"not %.200q", origin)
	}
	return nil
}

// serveCodec answers until ctx ends.
func (a *app) serveCodec(ctx context.Context, payloads converter.PayloadCodec, listen string, origins []string, remote bool) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return usagef("--listen: %w", err)
	}
	address, isTCP := listener.Addr().(*net.TCPAddr)
	if here := isTCP && address.IP.IsLoopback(); !here && !remote {
		_ = listener.Close()
		return usagef("--listen %s can be reached from other machines, and whoever reaches it reads what is encrypted: listen on "+
			"127.0.0.1, or add --allow-remote", listen)
	}
	server := &http.Server{
		Handler: codecHandler(payloads, origins, !remote), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	stopped := make(chan struct{})
	stopping := context.AfterFunc(ctx, func() {
		defer close(stopped)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), codecStop)
		defer cancel()
		// Requests that last longer are cut off.
		_ = server.Shutdown(limited)
	})
	endpoint := "http://" + listener.Addr().String()
	value := struct {
		Endpoint string   `json:"endpoint"`
		Origins  []string `json:"origins"`
	}{endpoint, append([]string{}, origins...)}
	if err := a.show(value, func(w io.Writer) {
		line(w, "Codec endpoint", endpoint)
		for _, origin := range origins {
			line(w, "For", origin)
		}
	}); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stopping()
		return fmt.Errorf("serve %s: %w", endpoint, err)
	}
	<-stopped
	return nil
}

// codecHandler speaks Temporal's remote codec protocol. Pages of other origins than those given are refused and, where
// onlyHere is set, so are requests to another host than this machine by one of its own names: a page may have its own name
// point here.
func codecHandler(payloads converter.PayloadCodec, origins []string, onlyHere bool) http.Handler {
	convert := http.MaxBytesHandler(converter.NewPayloadCodecHTTPHandler(payloads), maxCodecBody)
	mux := http.NewServeMux()
	for _, path := range []string{"/decode", "/encode"} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			// With another type a browser would not ask first.
			if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
				http.Error(w, "the content type must be application/json", http.StatusUnsupportedMediaType)
				return
			}
			convert.ServeHTTP(w, r)
		})
		// A browser asks first.
		mux.HandleFunc("OPTIONS "+path, func(w http.ResponseWriter, r *http.Request) {
			header := w.Header()
			header.Set("Access-Control-Allow-Methods", http.MethodPost)
			header.Set("Access-Control-Allow-Headers", "Content-Type, X-Namespace")
			header.Set("Access-Control-Max-Age", "600")
			if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
				header.Set("Access-Control-Allow-Private-Network", "true")
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Vary", "Origin")
		if onlyHere && !thisMachine(r.Host) {
			http.Error(w, "this is not the name of this machine", http.StatusForbidden)
			return
		}
		if given := r.Header.Values("Origin"); len(given) > 0 {
			if len(given) > 1 || !slices.Contains(origins, given[0]) {
				http.Error(w, "pages of this origin may not use the codec: give it by --origin", http.StatusForbidden)
				return
			}
			header.Set("Access-Control-Allow-Origin", given[0])
		}
		mux.ServeHTTP(w, r)
	})
}

// thisMachine says whether the host, with or without a port, is this machine's own name for itself.
func thisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
