"""Two small ranking models, the seeded scripts that train them, and a check that they still behave.

``ce-mini`` is a cross-encoder reranker and ``intent-mini`` a five-way intent classifier. Both are ordinary
``BertForSequenceClassification`` checkpoints of about five megabytes, so the whole serving path (tokenizer, engine,
pooling, scores) can be run and tested on a laptop CPU without downloading anything. All training text is generated
by this package.
"""
