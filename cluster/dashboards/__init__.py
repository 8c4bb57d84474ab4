"""Grafana dashboards, Prometheus rules and alerts, from one description.

spec         what a dashboard, a panel, a rule and an alert are
names        metrics of others that are used, with their labels; ours are in serve_app/observability/catalogue.py
queries      PromQL that panels share
boards/      the dashboards: overview, model, stages, gpu, rollouts
rules        recording rules and alerts
grafana      dashboards as Grafana's JSON
local        configuration files to look at all of it on one machine
cli          `python -m cluster dashboards`
generated/   what it writes, kept in the repository; a test compares
"""
