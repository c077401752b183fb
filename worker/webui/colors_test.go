package webui_test

import (
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"maps"
	"slices"
)

// inFewColors gives the picture in its 256 commonest colors, which keeps the pictures of a Web UI small and looks the same.
func inFewColors(seen image.Image) image.Image {
	often := map[color.NRGBA]int{}
	bounds := seen.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			often[color.NRGBAModel.Convert(seen.At(x, y)).(color.NRGBA)]++
		}
	}
	commonest := slices.SortedFunc(maps.Keys(often), func(a, b color.NRGBA) int {
		return cmp.Or(cmp.Compare(often[b], often[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range commonest[:min(len(commonest), 256)] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(bounds, palette)
	draw.Draw(few, bounds, seen, bounds.Min, draw.Src)
	return few
}
