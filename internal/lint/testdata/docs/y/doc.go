// Package y is said to be in another file.
package y
