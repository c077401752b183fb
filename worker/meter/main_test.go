package meter

import (
	"os"
	"testing"

	"github.com/reclaimhq/reclaim/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }
