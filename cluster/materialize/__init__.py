"""Puts checkpoints on fast storage: once, whole, and verified. `serve_app/materialized.py` describes the folder."""
