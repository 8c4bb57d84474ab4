"""Fusion rankers: a query and an image in, one logit out."""
