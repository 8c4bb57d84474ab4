"""`autoscaling`: a day of traffic against the scaling policies, in simulated time. `split`: one large request on one
and on several engine replicas.

| file | job |
| --- | --- |
| `commands.py` | options of both commands |
| `traffic.py` | arrivals: a made-up day, or a file of the reader's own |
| `simulate.py` | replicas that start, serve, queue and drain |
| `policies.py` | who decides on the number of replicas |
| `day.py`, `plot.py` | the run of `autoscaling`, its tables and its picture |
| `split.py` | the run of `split` |
"""
