"""Running Poolserve on clusters: `python -m cluster COMMAND`, manifests, Dockerfiles."""
