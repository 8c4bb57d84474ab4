"""`absa`, `embed`, `classify` and `documents`: Poolserve over HTTP beside other servers and beside libraries.

| file | job |
| --- | --- |
| `cli.py`, `options.py` | command line, a run's settings |
| `run.py` | one run: start, parity, turns, write |
| `workload.py` | texts: a JSONL file, or lengths drawn from a stated distribution |
| `wire.py` | requests and answers of each shape |
| `local.py`, `computing.py` | libraries without a server, in a process of their own |
| `agree.py` | do the sides give the same answers? |
| `summary.py`, `result.py` | rounds to figures and ratios; JSON, Markdown, HTML |
| `checkpoints.py` | checkpoints with random weights |
"""
