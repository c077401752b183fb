package main

import (
	"os"
	"strings"
	"testing"

	"github.com/reclaimhq/reclaim/schema/schematest"
)

// TestMain lets this test binary stand for the program where the stack starts it with "run" or "render".
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
		return
	}
	os.Exit(schematest.Run(m))
}
