// SPDX-License-Identifier: Apache-2.0
// Reads what pack.rs packed: the fields in the same order. One typed array a field.
"use strict";

function unpack(text, count) {
  const raw = atob(text);
  let at = 0;
  const number = () => {
    let value = 0, scale = 1, byte;
    do {
      byte = raw.charCodeAt(at++);
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return value;
  };
  const signed = () => {
    const n = number();
    return n % 2 ? -(n + 1) / 2 : n / 2;
  };
  const unzigzag = (n) => (n % 2 ? -(n + 1) / 2 : n / 2);
  const c = {
    count,
    time: new Float64Array(count), frame: new Float64Array(count), side: new Uint8Array(count),
    kind: new Uint8Array(count), flags: new Uint16Array(count), marks: new Uint32Array(count),
    segments: new Uint32Array(count), seq: new Float64Array(count), end: new Float64Array(count),
    length: new Float64Array(count), ack: new Float64Array(count), window: new Float64Array(count),
    flight: new Float64Array(count), rtt: new Float64Array(count), duplicate: new Uint32Array(count),
    sackAt: new Uint32Array(count + 1), sack: [],
  };
  const end = [0, 0], ack = [0, 0], win = [0, 0], flight = [0, 0];
  let time = 0, frame = 0, latest = 0;
  for (let i = 0; i < count; i++) {
    time += signed();
    frame += signed();
    // A clock that went back does not bend the graph.
    latest = Math.max(latest, time);
    c.time[i] = latest / 1e9;
    c.frame[i] = frame;
    const code = number(), s = code & 1;
    c.side[i] = s;
    c.kind[i] = code >> 1;
    const flags = c.flags[i] = number();
    c.marks[i] = number();
    c.segments[i] = number() + 1;
    c.seq[i] = end[s] + signed();
    c.length[i] = number();
    end[s] = c.end[i] = c.seq[i] + c.length[i] + (flags & 2 ? 1 : 0) + (flags & 1);
    let n = number();
    c.ack[i] = n ? (ack[s] += unzigzag(n - 1)) : NaN;
    n = number();
    c.window[i] = n ? (win[s] += unzigzag(n - 1)) : NaN;
    c.flight[i] = (flight[s] += signed());
    n = number();
    c.rtt[i] = n ? (n - 1) / 1e9 : NaN;
    c.duplicate[i] = number();
    for (let blocks = number(); blocks > 0; blocks--) {
      const left = (n = signed(), (c.ack[i] || 0) + n);
      c.sack.push(left, left + signed());
    }
    c.sackAt[i + 1] = c.sack.length;
  }
  // What each side sent, in order.
  c.sent = [0, 1].map((s) => {
    const list = [];
    for (let i = 0; i < count; i++) if (c.side[i] === s) list.push(i);
    return Int32Array.from(list);
  });
  return c;
}

// The first place in `list` whose point is not before `time`.
function firstAt(c, list, time) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (c.time[list[middle]] < time) low = middle + 1; else high = middle;
  }
  return low;
}

function grouped(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

function seconds(t, step) {
  const digits = step ? Math.max(0, Math.min(9, Math.ceil(-Math.log10(step) - 1e-9))) : 6;
  return t.toFixed(digits);
}

function duration(s) {
  if (s >= 1) return s.toPrecision(4) + " s";
  if (s >= 1e-3) return (s * 1e3).toPrecision(4) + " ms";
  return (s * 1e6).toPrecision(4) + " \u00b5s";
}

function scaled(n, unit) {
  const prefixes = ["", "k", "M", "G", "T"];
  let p = 0;
  while (Math.abs(n) >= 1000 && p < 4) { n /= 1000; p++; }
  return parseFloat(n.toPrecision(4)) + "\u202f" + prefixes[p] + unit;
}

// Round steps for an axis of about `count` marks.
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count);
  if (!(rough > 0)) return { step: 1, list: [from] };
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const list = [];
  for (let k = Math.ceil(from / step); k * step <= to && list.length < 100; k++) list.push(k * step);
  return { step, list };
}
