"""The wire layer: other servers' request shapes in, our messages out, and back again.

`routes.ROUTES` is the list of what is served; each route's adapter turns a JSON object into a `base.Call`. Nothing in
here does I/O, knows a model, or imports Ray.
"""
