"""How many replicas a deployment needs: pure functions of the work in flight, and the figures that replicas report."""
