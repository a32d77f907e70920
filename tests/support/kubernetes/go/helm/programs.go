// Package helm pins the program that renders the chart; it is built by its import path.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
