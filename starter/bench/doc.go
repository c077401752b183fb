// Package bench measures a running Reclaim: whole jobs against plain workflows that do the same work, and the guard
// statements alone against pgbench.
package bench
