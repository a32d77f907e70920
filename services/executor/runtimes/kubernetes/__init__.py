"""Engines in a Kubernetes cluster: as OME's InferenceServices, or as Deployments of our own."""
