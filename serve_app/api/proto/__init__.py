"""The .proto of the API and its generated stubs, which need only `grpcio` and `protobuf`.

    from serve_app.api.proto import poolserve_pb2 as pb, poolserve_pb2_grpc as rpc

`make proto` makes them again after a change of `poolserve.proto`.
"""
