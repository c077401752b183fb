package faults_test

import (
	"os/exec"
	"syscall"
)

// endWithParent lets the kernel kill the process when the test dies.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
