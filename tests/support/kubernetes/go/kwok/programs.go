// Package kwok pins the program that pretends to run nodes and pods; it is built by its import path.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
