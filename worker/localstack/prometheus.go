package localstack

import (
	"os/exec"
	"path/filepath"
)

// PrometheusProgram finds prometheus or promtool, as `make prepare` leaves them in the repository's folder, or on the PATH.
// ok is false where this machine has none.
func PrometheusProgram(name, repository string) (path string, ok bool) {
	for _, candidate := range []string{filepath.Join(repository, ".cache", "prometheus", "usr", "bin", name), name} {
		if found, err := exec.LookPath(candidate); err == nil {
			absolute, err := filepath.Abs(found)
			return absolute, err == nil
		}
	}
	return "", false
}
