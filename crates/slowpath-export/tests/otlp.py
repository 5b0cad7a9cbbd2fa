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


def signed(value):
    return struct.unpack("<q", value)[0]


def key_value(data):
    found = dict(fields(data))
    assert set(found) == {1, 2}
    value = dict(fields(found[2]))
    assert set(value) == {1}
    return text(found[1]), text(value[1])


def point(data, attributes, readers):
    """A data point: `readers` maps the number of a field to its name and how it is read."""
    readers = readers | {2: ("start", fixed), 3: ("time", fixed)}
    read = {"attributes": {}}
    for number, value in fields(data):
        if number == attributes:
            read["attributes"].update([key_value(value)])
        else:
            name, reader = readers[number]
            read[name] = reader(value)
    return read


def number_point(data):
    return point(data, 7, {4: ("value", double), 6: ("value", signed)})


def histogram_point(data):
    numbers = lambda form: lambda value: [n for (n,) in struct.iter_unpack(form, value)]
    readers = {
        4: ("count", fixed),
        5: ("sum", double),
        6: ("counts", numbers("<Q")),
        7: ("bounds", numbers("<d")),
    }
    # A number that is 0 may be left out (proto3, "Field Presence").
    read = {"count": 0} | point(data, 9, readers)
    assert sum(read["counts"]) == read["count"]
    return read


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
