"""Seeing it: metrics, traces and logs. Plain Python, no Ray.

catalogue    every metric of ours: name, type, labels, buckets, help, how replicas are added up
registry     a process's metrics, as prometheus_client counts them, and their snapshots
collector    snapshots of all replicas -> one page
request      what a request leaves behind: its metrics, its access line, its feature record
foreign      the pages of Ray's node agents and of HAProxy, as far as they belong to what is served
gpu          memory, utilisation, power and temperature
feature_log  requests and scores as JSON lines, through a queue that drops rather than slows
tracing      OpenTelemetry spans; imports nothing while it is off
"""
