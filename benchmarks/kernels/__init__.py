"""Kernel view: what reaches the GPU for one request, Transformers beside the engine.

* `commands`  the command line
* `worker`    one side in a process of its own: runs requests, under PyTorch's profiler or under Nsight Compute
* `sides`     the two sides
* `counters`  Nsight Compute: which counters, its command line, its table
* `report`    the page
"""
