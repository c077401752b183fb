// Package schema is the law: the tables, the roles, every SQL statement, and the connections that obey them. The typed
// code in package db is made from the .sql files by sqlc.
package schema

//go:generate make -C .. generate
