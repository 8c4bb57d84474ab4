"""`fusion-engine`: ways to put images into a fusion ranker's sequences, in one vLLM, side by side.

checkpoint    a fusion ranker with random weights
workload      queries, images and batches
engines       the sides: settings, and an engine that says what its steps look like
tokens_model  vLLM's usual way as a model: every patch is a token
plugin        makes that model known to vLLM's processes
worker        what the engines' workers tell
reference     the same scores in PyTorch
run           the run
"""
