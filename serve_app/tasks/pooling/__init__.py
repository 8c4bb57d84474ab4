"""The pooler's own numbers for single inputs, in whatever a model of another task computes (`POST /pooling`)."""
