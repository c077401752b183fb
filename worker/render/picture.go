package render

import (
	"image"
	"image/color"
	"math"
)

// A paletted picture takes one byte a pixel, so that the largest scene fits in 64 MB.
var palette = makePalette()

// makePalette is black for the set itself, then one turn of a colour wheel for what escapes: the end
// meets the beginning, so that no seam shows where the index wraps.
func makePalette() color.Palette {
	p := color.Palette{color.RGBA{A: 255}}
	for i := range 255 {
		t := float64(i) / 255
		wave := func(phase float64) uint8 {
			return uint8(math.Round(127.5 + 127.5*math.Cos(2*math.Pi*(t+phase))))
		}
		p = append(p, color.RGBA{R: wave(0.5), G: wave(0.4), B: wave(0.25), A: 255})
	}
	return p
}

func newPicture(in Input) *image.Paletted {
	return image.NewPaletted(image.Rect(0, 0, in.Width, in.Height), palette)
}

func renderRow(img *image.Paletted, in Input, y int) {
	// Pixels are square: the height of the view follows from the picture's proportions.
	step := in.Scale / float64(in.Width)
	ci := in.CenterY - (float64(y)-float64(in.Height-1)/2)*step
	row := img.Pix[y*img.Stride : y*img.Stride+in.Width]
	for x := range row {
		cr := in.CenterX + (float64(x)-float64(in.Width-1)/2)*step
		row[x] = colourIndex(cr, ci, in.MaxIterations)
	}
}

// colourIndex is 0 for a point that does not escape; for one that does it follows a continuous escape
// time, so that no bands show.
func colourIndex(cr, ci float64, iterations int) uint8 {
	// Far above the radius of 2 that decides: the farther out, the smoother the escape time.
	const escapeSquared = 1 << 16
	const coloursPerIteration = 8
	var zr, zi float64
	for n := range iterations {
		zr, zi = zr*zr-zi*zi+cr, 2*zr*zi+ci
		if m := zr*zr + zi*zi; m > escapeSquared {
			time := float64(n) + 1 - math.Log2(math.Log(m)/2)
			return uint8(1 + int(max(0, time)*coloursPerIteration)%255)
		}
	}
	return 0
}
