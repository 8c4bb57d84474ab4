"""Ray Serve deployments, one file each, in the order in which a request meets them.

gateway.py → io_processor.py → pooling_engine.py. Each is a shim: it wires, limits and reports. The work is in
serve_app, which needs neither Ray nor a GPU.
"""
