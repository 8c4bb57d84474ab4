"""Benchmarks of Poolserve: `python -m benchmarks --help`. The method is written down in README.md beside this file."""
