"""Sequence classifiers: a text (or a pair of texts) in, one probability per label out."""
