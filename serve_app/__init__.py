"""Plain Python of the serving system: everything here runs without Ray and without a GPU.

Follow a request through the modules in this order: `api` (wire shape to message), `routing` (which version),
`tasks` (text to engine input, engine output to result), `engine` (vLLM). `app` builds the Ray Serve applications,
`settings` holds every option, `errors` every failure.
"""

__version__ = "0.1.0"
