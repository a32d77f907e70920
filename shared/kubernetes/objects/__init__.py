"""Objects of Kubernetes as the API writes them, by what is read of them.

What a service does not need is left out, and skipped when bodies are decoded: a cluster has
hundreds of thousands of pods. What ends in `Details` is read of few objects.
"""
