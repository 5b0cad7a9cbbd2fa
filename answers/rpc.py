#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gRPC with plain bytes, without generated code.

    rpc.py server PORT                                 /T/Unary answers at once, /T/Stream never ends
    rpc.py client ADDRESS:PORT Unary|Stream PAUSE      pauses after each answer
"""

import sys
import time
from concurrent import futures

import grpc


def stream(_request, _context):
    while True:
        yield bytes(100_000)


def serve(port):
    handlers = {"Stream": grpc.unary_stream_rpc_method_handler(stream),
                "Unary": grpc.unary_unary_rpc_method_handler(lambda request, _context: request)}
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("T", handlers),))
    server.add_insecure_port(f"0.0.0.0:{port}")
    server.start()
    server.wait_for_termination()


def call(target, method, pause):
    # With windows that grow, the library holds megabytes that its application has not asked for, and for seconds nothing
    # passes on the connection.
    channel = grpc.insecure_channel(target, options=[("grpc.http2.bdp_probe", 0)])
    if method == "Stream":
        for _ in channel.unary_stream("/T/Stream")(b""):
            time.sleep(float(pause))
    unary = channel.unary_unary("/T/Unary")
    while True:
        unary(b"question")
        time.sleep(float(pause))


if __name__ == "__main__":
    {"server": serve, "client": call}[sys.argv[1]](*sys.argv[2:])
