"""Bringing versions into service and out of it, as edits of the one serve configuration.

`config_text.py` edits the file's text, `state.py` is how far a rollout has come, `plan.py` says what the file looks
like in each phase and which phase follows, `runner.py` walks through them, `judge.py` compares two versions,
`ray_cluster.py` is the running service, `versions.py` knows who was asked last, `cli.py` is the command.
"""
