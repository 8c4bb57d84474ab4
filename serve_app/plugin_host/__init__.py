"""vLLM's IO Processor plugins inside our IOProcessor, unchanged; and what our own tasks make of `data`.

registration.py finds a plugin or says why not; vllm_side.py gives it what vLLM would; isolation.py gives each request
its own state; prompts.py makes token ids of what it returns; host.py is one request on one screen. native.py reads
`data` for our own tasks, here and in `serve_app.vllm_plugin.io_processors`.
"""
