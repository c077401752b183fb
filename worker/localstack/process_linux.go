package localstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// signalWhenOrphaned lets the kernel send the signal to the child when we die.
func signalWhenOrphaned(attr *syscall.SysProcAttr, sig syscall.Signal) {
	attr.Pdeathsig = sig
}

// watchOverOrphan does nothing here: the kernel does it.
func watchOverOrphan(int, syscall.Signal) (release func(), err error) {
	return func() {}, nil
}

// childrenOf gives the processes whose parent is pid.
func childrenOf(pid int) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []int
	for _, path := range paths {
		if _, parent, ok := readStat(path); ok && parent == pid {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return nil, fmt.Errorf("list processes: %w", err)
			}
			children = append(children, child)
		}
	}
	return children, nil
}

// alive tells whether the process exists and is not merely waiting for its parent to notice its end.
func alive(pid int) bool {
	state, _, ok := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	return ok && state != "Z" && state != "X"
}

// readStat reads state and parent from a file /proc/PID/stat. The name of the program, which may
// hold spaces and brackets, ends with the last bracket.
func readStat(path string) (state string, parent int, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", 0, false
	}
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}
