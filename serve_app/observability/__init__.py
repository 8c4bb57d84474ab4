"""Seeing it: metrics, traces and logs.

    catalogue    every metric of ours: name, type, labels, buckets, help, how replicas are added up
    registry     a process's metrics, as prometheus_client counts them, and their snapshots
    sources      what loaders, processors and engines count
    gpu          memory, utilization, power and temperature
    reporter     sends a process's snapshots to the collector
    collector    snapshots of all replicas -> one page
    foreign      the pages of Ray's node agents and of HAProxy, as far as they belong to what is served
    exposition   the page's text format

    note         what is known of a request so far; its access line
    request      what a request leaves behind: metrics, an access line, a feature record, a span
    feature_log  requests and scores as JSON lines
    lines        files of JSON lines behind a queue that drops rather than slows
    tracing      OpenTelemetry spans; imports nothing while it is off

Plain Python. `deployments/metrics.py` is the way from the replicas to the page.
"""
