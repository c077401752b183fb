// Package faults holds no code of its own: its tests run whole jobs against real servers and break what they can.
//
// The scenarios run with every `go test`. The tests that kill processes and stop servers take minutes and run, without
// the scenarios, with `make test-faults`, which sets RECLAIM_FAULTS=1. The crash matrix and the soak take longer still, and run
// with `make crash` and `make soak` alone (RECLAIM_CRASH=1).
package faults
