// Package codec holds what all decoders and encoders share.
package codec
