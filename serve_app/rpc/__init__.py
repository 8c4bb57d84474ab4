"""gRPC: the HTTP routes' operations as RPCs of `poolserve.v1.Poolserve` (`api/proto/poolserve.proto`).

A message becomes the JSON object of the HTTP route (`bodies`), goes through the route's own adapter and
`Frontend.serve`, and the route's answer becomes a message (`answers`). So both ways have the same checks, limits,
errors and numbers. `operations` is the list, `server` the transport.
"""
