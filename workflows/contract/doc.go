// Package contract holds what other programs are written against: the names, inputs, results, states and
// validation rules of Reclaim's workflows. It is a leaf: every room imports it and it imports none of them.
package contract
