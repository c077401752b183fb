package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strings"
)

const (
	maxSide            = 8192
	maxPixels          = 64 * pixelsPerMegapixel
	maxIterations      = 10_000
	maxSlowMs          = 24 * 60 * 60 * 1000
	maxCenter          = 10.0
	maxScale           = 100.0
	maxKeyLength       = 1000
	pixelsPerMegapixel = 1_000_000
)

var (
	idPattern       = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,100}$`)
	fileNamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// Input is the scene: the view of the Mandelbrot set to render, and how the rendering should misbehave
// for a demonstration or a test.
type Input struct {
	// Width is in pixels, 1 to 8192. Width times height is at most 64 megapixels (of 1,000,000).
	Width int `json:"width"`
	// Height is in pixels, 1 to 8192.
	Height int `json:"height"`
	// CenterX is the real part of the picture's centre, -10 to 10.
	CenterX float64 `json:"centerX"`
	// CenterY is the imaginary part of the picture's centre, -10 to 10.
	CenterY float64 `json:"centerY"`
	// Scale is the width of the view in the complex plane, above 0 and at most 100; 3.5 shows all of
	// the set.
	Scale float64 `json:"scale"`
	// MaxIterations is 1 to 10000; deeper views need more.
	MaxIterations int `json:"maxIterations"`
	// SlowMs makes the rendering take at least so many milliseconds, spread over the rows; 0 to a day.
	SlowMs int64 `json:"slowMs"`
	// FailAttempts makes the attempts numbered 1 to FailAttempts fail with RenderFailed.
	FailAttempts int `json:"failAttempts"`
	// NeverSucceeds makes every attempt fail with BadScene.
	NeverSucceeds bool `json:"neverSucceeds"`
	// FailWhile names a file in the results directory: attempts that begin while it exists fail with
	// StudioDown. Empty for none.
	FailWhile string `json:"failWhile"`

	// fault is what is wrong with the JSON that the scene was read from.
	fault string
}

// Help lists the fields of the scene, for people.
func Help() string {
	return fmt.Sprintf(`The input of the activity %s is a scene, all of it in one JSON object; other fields are refused:

  width, height      in pixels, 1 to %d each, together at most 64 megapixels
  centerX, centerY   the middle of the view, -%g to %[3]g
  scale              the width of the view, above 0 and at most %g; 3.5 shows all
  maxIterations      1 to %d

and, to make it misbehave:

  slowMs             takes at least so many milliseconds
  failAttempts       the attempts 1 to N fail, and another may succeed
  neverSucceeds      true: fails for good
  failWhile          attempts that begin while a file of this name is in the results' folder fail
`, ActivityName, maxSide, maxCenter, maxScale, maxIterations)
}

// UnmarshalJSON reads a scene. What is wrong with it is kept for check to tell: an error here would be told as trouble of
// the worker's, and the same scene tried again.
func (in *Input) UnmarshalJSON(data []byte) error {
	type plain Input // without this method
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode((*plain)(in)); err != nil {
		in.fault = "the scene cannot be read: " + strings.TrimPrefix(err.Error(), "json: ")
	}
	return nil
}

// check returns an error that names the field and its rule.
func (in Input) check() error {
	switch {
	case in.fault != "":
		return errors.New(in.fault)
	case in.Width < 1 || in.Width > maxSide:
		return fmt.Errorf("width is %d: it must be 1 to %d pixels", in.Width, maxSide)
	case in.Height < 1 || in.Height > maxSide:
		return fmt.Errorf("height is %d: it must be 1 to %d pixels", in.Height, maxSide)
	case in.Width*in.Height > maxPixels:
		return fmt.Errorf("width times height is %d pixels: it must be at most %d", in.Width*in.Height, maxPixels)
	// Written so that NaN fails too.
	case !(math.Abs(in.CenterX) <= maxCenter):
		return fmt.Errorf("centerX is %g: it must be %g to %g", in.CenterX, -maxCenter, maxCenter)
	case !(math.Abs(in.CenterY) <= maxCenter):
		return fmt.Errorf("centerY is %g: it must be %g to %g", in.CenterY, -maxCenter, maxCenter)
	case !(in.Scale > 0 && in.Scale <= maxScale):
		return fmt.Errorf("scale is %g: it must be above 0 and at most %g", in.Scale, maxScale)
	case in.MaxIterations < 1 || in.MaxIterations > maxIterations:
		return fmt.Errorf("maxIterations is %d: it must be 1 to %d", in.MaxIterations, maxIterations)
	case in.SlowMs < 0 || in.SlowMs > maxSlowMs:
		return fmt.Errorf("slowMs is %d: it must be 0 to %d", in.SlowMs, maxSlowMs)
	case in.FailAttempts < 0:
		return fmt.Errorf("failAttempts is %d: it must not be negative", in.FailAttempts)
	case in.FailWhile != "" && (!fileNamePattern.MatchString(in.FailWhile) || in.FailWhile == "." || in.FailWhile == ".."):
		return fmt.Errorf("failWhile is %q: it must be a file name of 1 to 100 characters of A-Z a-z 0-9 . _ -", in.FailWhile)
	}
	return nil
}

// checkJob checks what identifies the job: all that the probe needs.
func (m Meta) checkJob() error {
	const rule = "it must be 1 to 100 characters of A-Z a-z 0-9 . _ : -"
	if !idPattern.MatchString(m.Tenant) {
		return fmt.Errorf("tenant is %q: %s", m.Tenant, rule)
	}
	if !idPattern.MatchString(m.JobID) {
		return fmt.Errorf("jobId is %q: %s", m.JobID, rule)
	}
	return nil
}

// checkAttempt checks what the work needs.
func (m Meta) checkAttempt() error {
	if err := m.checkJob(); err != nil {
		return err
	}
	if m.Attempt < 1 {
		return fmt.Errorf("attempt is %d: it must be at least 1", m.Attempt)
	}
	if n := len(m.IdempotencyKey); n < 1 || n > maxKeyLength {
		return fmt.Errorf("idempotencyKey is %d bytes long: it must be 1 to %d", n, maxKeyLength)
	}
	return nil
}

// CostByMegapixel is the price in credits of a picture of width by height pixels at
// creditsPerMegapixel credits for 1,000,000 pixels: rounded up, and at least 1 credit. It returns an
// error when a side is below 1, the rate is negative, or the number of pixels or the price is too large
// for 64 bits.
func CostByMegapixel(width, height int, creditsPerMegapixel int64) (int64, error) {
	if width < 1 || height < 1 {
		return 0, fmt.Errorf("price a picture of %d by %d pixels: both sides must be at least 1", width, height)
	}
	if creditsPerMegapixel < 0 {
		return 0, fmt.Errorf("price a picture at %d credits a megapixel: the rate must not be negative", creditsPerMegapixel)
	}
	errTooLarge := errors.New("price a picture: it or its price does not fit 64 bits")
	high, pixels := bits.Mul64(uint64(width), uint64(height))
	if high != 0 {
		return 0, errTooLarge
	}
	high, low := bits.Mul64(pixels, uint64(creditsPerMegapixel))
	if high >= pixelsPerMegapixel {
		return 0, errTooLarge
	}
	credits, rest := bits.Div64(high, low, pixelsPerMegapixel)
	if rest > 0 && credits < math.MaxUint64 {
		credits++
	}
	if credits > math.MaxInt64 {
		return 0, errTooLarge
	}
	return max(1, int64(credits)), nil
}
