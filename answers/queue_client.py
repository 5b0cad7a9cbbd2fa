#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A RabbitMQ client.

    queue_client.py publish ADDRESS PORT SIZE PAUSE    a message after each pause
    queue_client.py consume ADDRESS PORT PAUSE         works so long on each; the broker pushes
"""

import sys
import time

import pika


def channel_to(address, port):
    channel = pika.BlockingConnection(pika.ConnectionParameters(address, int(port))).channel()
    channel.queue_declare("messages")
    return channel


def publish(address, port, size, pause):
    channel = channel_to(address, port)
    while True:
        channel.basic_publish("", "messages", bytes(int(size)))
        time.sleep(float(pause))


def consume(address, port, pause):
    channel = channel_to(address, port)
    channel.basic_consume("messages", lambda *_: time.sleep(float(pause)), auto_ack=True)
    channel.start_consuming()


if __name__ == "__main__":
    {"publish": publish, "consume": consume}[sys.argv[1]](*sys.argv[2:])
