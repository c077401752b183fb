// Package channel is the port to payment channels: what Reclaim asks of one, what it declares it can do, and the shape
// of the evidence that it gives. Each channel has a folder of its own below this one; package conformance holds the
// suite that every one of them must pass.
package channel
