// Package client is Reclaim's door for Go programs: start a metered job and learn whether it was charged, follow it,
// report an outcome from outside, decide a stuck one, and read accounts and timelines. Every call may be repeated with
// the same ids; every error is, or wraps, a *contract.Error that says whether repeating helps.
package client
