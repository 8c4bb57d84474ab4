"""Rerankers: a (query, document) pair in, one score out. Cross-encoders and LLM rerankers with a template."""
