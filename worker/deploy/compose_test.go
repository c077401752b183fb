package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

// root is the folder of docker-compose.yml, seen from here.
const root = "../.."

type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
}

type composeService struct {
	Image, Build, User string
	Restart            string
	ReadOnly           bool     `yaml:"read_only"`
	CapDrop            []string `yaml:"cap_drop"`
	SecurityOpt        []string `yaml:"security_opt"`
	Entrypoint         []string
	Environment        map[string]string
	EnvFile            []string `yaml:"env_file"`
	Ports, Volumes     []string
	Profiles           []string
	Healthcheck        *struct{ Test []string }
	DependsOn          map[string]struct{ Condition string } `yaml:"depends_on"`
}

// isJob tells whether the service ends when its work is done.
func (s composeService) isJob() bool { return s.Restart == "no" }

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	require.NoError(t, err)
	var file composeFile
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Services, 13)
	return file
}

var pinned = regexp.MustCompile(`^[a-z]+(/[a-z-]+)?:v?\d+\.\d+[0-9a-z.-]*$`)

func TestEveryServiceIsPinnedHardenedAndWatched(t *testing.T) {
	t.Parallel()
	file := readCompose(t)
	for name, service := range file.Services {
		if service.Build == "" {
			assert.Regexp(t, pinned, service.Image, name)
		} else {
			assert.Equal(t, "reclaim:local", service.Image, "%s: what is built here is not looked for elsewhere", name)
		}
		if strings.HasPrefix(service.Image, "temporalio/") && name != "ui" {
			_, tag, _ := strings.Cut(service.Image, ":")
			assert.Equal(t, localstack.TemporalServerVersion, tag, "%s: the release that the tests run", name)
		}
		for _, port := range service.Ports {
			assert.Regexp(t, `^127\.0\.0\.1:`, port, name)
		}
		assert.True(t, service.ReadOnly, name)
		assert.Equal(t, []string{"ALL"}, service.CapDrop, name)
		assert.Equal(t, []string{"no-new-privileges:true"}, service.SecurityOpt, name)
		if service.isJob() {
			assert.Nil(t, service.Healthcheck, name)
		} else if assert.NotNil(t, service.Healthcheck, name) {
			assert.Equal(t, "CMD", service.Healthcheck.Test[0], name)
			assert.Equal(t, "unless-stopped", service.Restart, name)
		}
		for other, needs := range service.DependsOn {
			if file.Services[other].isJob() {
				assert.Equal(t, "service_completed_successfully", needs.Condition, "%s needs %s", name, other)
			} else {
				assert.Equal(t, "service_healthy", needs.Condition, "%s needs %s", name, other)
			}
		}
	}
}

func TestWhatIsMountedExists(t *testing.T) {
	t.Parallel()
	file := readCompose(t)
	for name, service := range file.Services {
		for _, volume := range service.Volumes {
			source, target, _ := strings.Cut(volume, ":")
			if !strings.HasPrefix(source, "./") {
				assert.Contains(t, file.Volumes, source, name)
				continue
			}
			target, access, _ := strings.Cut(target, ":")
			assert.Equal(t, "ro", access, "%s: %s", name, volume)
			assert.DirExists(t, filepath.Join(root, source), name)
			for _, argument := range append(service.Entrypoint, service.Environment["DYNAMIC_CONFIG_FILE_PATH"], service.Environment["RECLAIM_CHANNELS"]) {
				if inside, ok := strings.CutPrefix(argument, target+"/"); ok {
					assert.FileExists(t, filepath.Join(root, source, inside), name)
				}
			}
		}
		for _, path := range service.EnvFile {
			assert.FileExists(t, filepath.Join(root, path), name)
		}
	}
}

var (
	secretName = regexp.MustCompile(`PASSWORD|PWD|SECRET|KEY|TOKEN`)
	required   = regexp.MustCompile(`\$\{([A-Z_]+):\?[^}]+\}`)
)

func TestNoSecretHasADefault(t *testing.T) {
	t.Parallel()
	wanted := map[string]bool{}
	for name, service := range readCompose(t).Services {
		for variable, value := range service.Environment {
			if secretName.MatchString(variable) {
				assert.Regexp(t, `^`+required.String()+`$`, value, "%s: %s", name, variable)
			}
			if _, after, ok := strings.Cut(value, "://"); ok && strings.Contains(after, "@") {
				assert.Regexp(t, `^[a-z_]+:`+required.String()+`@`, after, "%s: %s", name, variable)
			}
			for _, match := range required.FindAllStringSubmatch(value, -1) {
				wanted[match[1]] = true
			}
		}
	}
	example, err := os.ReadFile(filepath.Join(root, ".env.example"))
	require.NoError(t, err)
	for line := range strings.Lines(string(example)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		assert.Empty(t, value, name)
		assert.True(t, wanted[name], "nothing needs %s of .env.example", name)
		delete(wanted, name)
	}
	assert.Empty(t, wanted, ".env.example lacks them")
}

func TestTheWebUIDecidesAndEndsNothing(t *testing.T) {
	t.Parallel()
	ui := readCompose(t).Services["ui"].Environment
	for variable, disabled := range map[string]string{
		"TEMPORAL_WORKFLOW_TERMINATE_DISABLED": "true", "TEMPORAL_WORKFLOW_RESET_DISABLED": "true",
		"TEMPORAL_BATCH_ACTIONS_DISABLED": "true", "TEMPORAL_START_WORKFLOW_DISABLED": "true",
		"TEMPORAL_WORKFLOW_SIGNAL_DISABLED": "false", "TEMPORAL_WORKFLOW_UPDATE_DISABLED": "false",
		"TEMPORAL_DISABLE_WRITE_ACTIONS": "false",
	} {
		assert.Equal(t, disabled, ui[variable], variable)
	}
}

func TestTheImageIsPinnedAndRunsAsNobody(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	stages := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, stages, 2)
	for _, stage := range stages {
		assert.Regexp(t, pinned, stage[1])
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	goVersion := regexp.MustCompile(`(?m)^go (\S+)`).FindSubmatch(module)
	require.NotNil(t, goVersion)
	assert.Contains(t, stages[0][1], "golang:"+string(goVersion[1]))
	final := string(text[bytes.LastIndex(text, []byte("\nFROM ")):])
	assert.Regexp(t, `(?m)^USER [1-9]\d*:[1-9]\d*$`, final)
	assert.NotRegexp(t, `(?m)^(ENV|ARG) `, string(text), "what is set there stays in the image")
}

// The build sees only what .dockerignore lets through: it must be all that the programs are compiled from.
func TestTheBuildSeesAllItsSources(t *testing.T) {
	t.Parallel()
	listed, err := exec.Command("go", "list", "-deps", "-f",
		`{{if and .Module .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`,
		root+"/worker", root+"/starter").Output()
	require.NoError(t, err)
	ignore, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	require.NoError(t, err)
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	files := strings.Fields(string(listed))
	require.Greater(t, len(files), 100)
	for _, file := range files {
		path, err := filepath.Rel(top, file)
		require.NoError(t, err)
		assert.False(t, ignored(string(ignore), path), path)
	}
	assert.True(t, ignored(string(ignore), ".env"), "it holds the secrets")
}

// ignored reads as much of .dockerignore's language as ours uses: the last line that matches the path, or a folder above
// it, decides.
func ignored(rules, path string) bool {
	is := false
	for rule := range strings.Lines(rules) {
		rule = strings.TrimSpace(rule)
		if rule == "" || strings.HasPrefix(rule, "#") {
			continue
		}
		pattern, allows := strings.CutPrefix(rule, "!")
		for part := path; part != "."; part = filepath.Dir(part) {
			name, anywhere := strings.CutPrefix(pattern, "**/")
			candidate := part
			if anywhere {
				candidate = filepath.Base(part)
			}
			if matched, _ := filepath.Match(name, candidate); matched {
				is = !allows
			}
		}
	}
	return is
}

func TestTheChannelsFileLoads(t *testing.T) {
	t.Parallel()
	worker := readCompose(t).Services["worker"].Environment
	settings, err := config.Load(func(name string) string {
		switch name {
		case "RECLAIM_CHANNELS":
			return "reclaim/" + filepath.Base(worker[name])
		case "TEMPORAL_CONFIG_FILE":
			return os.DevNull
		case "DATABASE_URL":
			return required.ReplaceAllString(worker[name], "0123abcd")
		}
		return required.ReplaceAllString(worker[name], "0123abcd")
	})
	require.NoError(t, err)
	require.Len(t, settings.Channels, 1)
	assert.Equal(t, "http://simulator:12111", settings.Channels[0].BaseURL)
}

// compose runs Debian's docker-compose, or Docker's, with a file of variables.
func compose(t *testing.T, variables string, arguments ...string) (string, error) {
	t.Helper()
	command := []string{"docker-compose"}
	if _, err := exec.LookPath(command[0]); err != nil {
		command = []string{"docker", "compose"}
		if exec.Command("docker", "compose", "version").Run() != nil {
			t.Skip("there is neither docker-compose nor docker compose")
		}
	}
	command = append(command, "--env-file", variables)
	run := exec.Command(command[0], append(command[1:], arguments...)...)
	run.Dir = root
	run.Env = localstack.CleanEnv("POSTGRES_", "RECLAIM_", "TEMPORAL_", "GRAFANA_", "COMPOSE_")
	said, err := run.CombinedOutput()
	return string(said), err
}

var (
	secretsLine   = regexp.MustCompile(`(?m)^# +(\(umask .*)$`)
	overrideBlock = regexp.MustCompile("(?s)```yaml\n(services:.*?)```")
)

func TestComposeTakesTheFileWithMadeSecretsOnly(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	require.NoError(t, os.WriteFile(none, nil, 0o600))
	said, err := compose(t, none, "config", "-q")
	require.Error(t, err)
	assert.Contains(t, said, "_PASSWORD", "which one is missing")
	assert.Contains(t, said, ".env.example", "what to do")

	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("there is no openssl to make secrets with")
	}
	folder := t.TempDir()
	example, err := os.ReadFile(filepath.Join(root, ".env.example"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, ".env.example"), example, 0o600))
	line := secretsLine.FindSubmatch(example)
	require.NotNil(t, line, ".env.example does not say how to make .env")
	guide, err := os.ReadFile(filepath.Join(root, "docs", "compose.md"))
	require.NoError(t, err)
	assert.Contains(t, string(guide), string(line[1]), "the guide says it, too")
	makeSecrets := exec.Command("sh", "-euc", string(line[1]))
	makeSecrets.Dir = folder
	output, err := makeSecrets.CombinedOutput()
	require.NoError(t, err, "%s", output)
	secrets := filepath.Join(folder, ".env")
	info, err := os.Stat(secrets)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	made, err := os.ReadFile(secrets)
	require.NoError(t, err)
	values := regexp.MustCompile(`(?m)^[A-Z_]+=([0-9a-f]{48})$`).FindAllStringSubmatch(string(made), -1)
	require.Len(t, values, 7)
	slices.SortFunc(values, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
	assert.Len(t, slices.CompactFunc(values, func(a, b []string) bool { return a[1] == b[1] }), 7, "a secret each")

	said, err = compose(t, secrets, "--profile", "monitoring", "config", "-q")
	require.NoError(t, err, said)
	override := filepath.Join(folder, "override.yml")
	block := overrideBlock.FindSubmatch(guide)
	require.NotNil(t, block, "docs/compose.md shows no override")
	require.NoError(t, os.WriteFile(override, block[1], 0o600))
	added := append(made, "STRIPE_API_KEY=a\nSTRIPE_WEBHOOK_SECRET=b\n"...)
	require.NoError(t, os.WriteFile(secrets, added, 0o600))
	said, err = compose(t, secrets, "-f", "docker-compose.yml", "-f", override, "config", "-q")
	require.NoError(t, err, said)
}
