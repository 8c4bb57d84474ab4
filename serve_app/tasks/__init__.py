"""One folder per task, with the same three files in each.

`build_input.py`  request → sequences of token ids (CPU, in a worker thread)
`postprocess.py`  the engine's numbers → result (arithmetic on a few floats: a function, not a deployment)
`reference.py`    the same answer from Transformers, one input at a time; what "correct" means in the parity tests
"""
