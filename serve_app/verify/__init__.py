"""`python -m serve_app verify`: is the served model the trained one? Transformers and the served path, side by side."""
