"""Embedding models: a text in, one vector out; also rank by cosine."""
