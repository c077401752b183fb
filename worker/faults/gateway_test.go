package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// gateway is the HTTP door as a process, which reaches Postgres through a proxy. It stays at its address.
type gateway struct {
	*child
	proxy        *schematest.LossyProxy
	address, key string
}

// newGateway makes a place for a door, and a key to it by whose name all is asked.
func (s *stage) newGateway(actor string) *gateway {
	s.t.Helper()
	key, err := s.client.CreateKey(s.ctx(), s.tenant, actor, contract.Scopes())
	require.NoError(s.t, err)
	return &gateway{proxy: schematest.NewLossyProxy(s.t, s.database.Address), address: freeAddress(s.t), key: key.Secret}
}

func (s *stage) startGateway(g *gateway) *child {
	return s.startProgram(exec.Command(workerBinary(s.t), "gateway"), `"listening"`, g.proxy.URL(s.database.AppURL), "RECLAIM_LISTEN="+g.address)
}

// post asks once, and returns what was answered and with which status. What is refused is an *api.Problem, as is a fault of the
// door's own; any other error says that there was no answer yet.
func (g *gateway) post(ctx context.Context, path, key string, body []byte) (status int, said []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.address+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header = headers("Content-Type", "application/json", "Authorization", "Bearer "+g.key)
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	status = response.StatusCode
	said, err = io.ReadAll(response.Body)
	switch {
	case err != nil:
		return status, nil, err
	case status < 300:
		return status, said, nil
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return status, nil, fmt.Errorf("%d %s", status, said)
	}
	var problem api.Problem
	if err := json.Unmarshal(said, &problem); err != nil {
		return status, nil, fmt.Errorf("%d %s: %w", status, said, err)
	}
	return status, nil, &problem
}
