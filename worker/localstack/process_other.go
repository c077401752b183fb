//go:build unix && !linux

package localstack

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// signalWhenOrphaned does nothing here: only Linux signals orphans.
func signalWhenOrphaned(*syscall.SysProcAttr, syscall.Signal) {}

// watchOverOrphan signals the child when we die.
func watchOverOrphan(pid int, sig syscall.Signal) (release func(), err error) {
	return watchByShell(pid, sig)
}

// childrenOf gives the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	output, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		children = append(children, child)
	}
	return children, nil
}

// alive tells whether the process exists.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
