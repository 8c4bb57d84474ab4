"""Aspect-based sentiment: a text in, spans with an aspect and a polarity out.

Three kinds of checkpoints (`labels.py`): token classifiers, token classifiers with a second head for the whole text,
and pair classifiers that rate (text, aspect). Beside the files of every task: `labels.py` reads what a checkpoint's
labels mean, `windows.py` cuts long texts and puts them together again, `words.py` makes one label of a word's tokens,
and `spans.py` makes spans in the caller's code points.
"""
