#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads an ExportMetricsServiceRequest from standard input and prints it as JSON.

Knows nothing of the exporter: the wire format is that of protobuf's "Encoding" page, the
field numbers are those of opentelemetry-proto's metrics.proto, resource.proto and
common.proto. A field that they do not have is an error.
"""

import json
import struct
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = data[at : at + 8], at + 8
            assert len(value) == 8
        elif wire == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
            assert len(value) == length
        else:
            raise ValueError(f"wire type {wire}")
        yield number, value


def fixed(data):
    return struct.unpack("<Q", data)[0]


def double(data):
    return struct.unpack("<d", data)[0]


def text(data):
    return data.decode()


def key_value(data):
    found = dict(fields(data))
    assert set(found) == {1, 2}
    value = dict(fields(found[2]))
    assert set(value) == {1}
    return text(found[1]), text(value[1])


def number_point(data):
    point = {"attributes": {}}
    for number, value in fields(data):
        if number == 2:
            point["start"] = fixed(value)
        elif number == 3:
            point["time"] = fixed(value)
        elif number == 4:
            point["value"] = double(value)
        elif number == 6:
            point["value"] = struct.unpack("<q", value)[0]
        elif number == 7:
            point["attributes"].update([key_value(value)])
        else:
            raise ValueError(f"NumberDataPoint field {number}")
    return point


def histogram_point(data):
    point = {"attributes": {}}
    for number, value in fields(data):
        if number == 2:
            point["start"] = fixed(value)
        elif number == 3:
            point["time"] = fixed(value)
        elif number == 4:
            point["count"] = fixed(value)
        elif number == 5:
            point["sum"] = double(value)
        elif number == 6:
            point["counts"] = [n for (n,) in struct.iter_unpack("<Q", value)]
        elif number == 7:
            point["bounds"] = [n for (n,) in struct.iter_unpack("<d", value)]
        elif number == 9:
            point["attributes"].update([key_value(value)])
        else:
            raise ValueError(f"HistogramDataPoint field {number}")
    assert sum(point["counts"]) == point["count"]
    return point


TEMPORALITY = {1: "delta", 2: "cumulative"}


def points(data, read):
    found = {"points": [], "monotonic": False}
    for number, value in fields(data):
        if number == 1:
            found["points"].append(read(value))
        elif number == 2:
            found["temporality"] = TEMPORALITY[value]
        elif number == 3:
            found["monotonic"] = bool(value)
        else:
            raise ValueError(f"field {number}")
    return found


def metric(data):
    found = {}
    for number, value in fields(data):
        if number == 1:
            found["name"] = text(value)
        elif number == 2:
            found["description"] = text(value)
        elif number == 3:
            found["unit"] = text(value)
        elif number == 5:
            found["gauge"] = points(value, number_point)
        elif number == 7:
            found["sum"] = points(value, number_point)
        elif number == 9:
            found["histogram"] = points(value, histogram_point)
        else:
            raise ValueError(f"Metric field {number}")
    return found


def scope_metrics(data, found):
    for number, value in fields(data):
        if number == 1:
            scope = dict(fields(value))
            found["scope"] = {"name": text(scope[1]), "version": text(scope[2])}
        elif number == 2:
            found["metrics"].append(metric(value))
        else:
            raise ValueError(f"ScopeMetrics field {number}")


def request(data):
    found = {"resource": {}, "metrics": []}
    for number, resource_metrics in fields(data):
        assert number == 1
        for number, value in fields(resource_metrics):
            if number == 1:
                for number, attribute in fields(value):
                    assert number == 1
                    found["resource"].update([key_value(attribute)])
            elif number == 2:
                scope_metrics(value, found)
            else:
                raise ValueError(f"ResourceMetrics field {number}")
    return found


json.dump(request(sys.stdin.buffer.read()), sys.stdout)
