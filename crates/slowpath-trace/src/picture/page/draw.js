// SPDX-License-Identifier: Apache-2.0
// Draws one direction of a connection. Where many segments share a column of pixels, the
// column is drawn and not they; what is marked is always drawn. What is drawn of a column comes from
// levels that are made once (`Levels`), so that a frame costs by its pixels and not by its segments.
"use strict";

const MARK = { zero: 1, full: 2, dsack: 1 << 12, ce: 1 << 14, ece: 1 << 15, cwr: 1 << 16, needless: 1 << 19 };
const FLAG = { fin: 1, syn: 2, rst: 4, psh: 8 };
const HEIGHTS = [0.56, 0.14, 0.16, 0.14];
const MARGIN = { left: 92, right: 14, top: 6, gap: 20, bottom: 30 };

function panels(width, height) {
  const room = height - MARGIN.top - MARGIN.bottom - MARGIN.gap * 3;
  let top = MARGIN.top;
  return HEIGHTS.map((share) => {
    const panel = { left: MARGIN.left, top, width: width - MARGIN.left - MARGIN.right, height: room * share };
    top += panel.height + MARGIN.gap;
    return panel;
  });
}

// Places of a list, thinned: of each bucket the first, the least, the greatest and the last by a
// value. A level is used while a column of pixels has two of its buckets or more: each column then has the
// least and the greatest of its points.
const BUCKETS = [16, 64, 256, 1024, 4096];

class Levels {
  constructor(list, value) {
    this.list = list;
    this.levels = BUCKETS.filter((size) => size * 64 <= list.length).map((size) => {
      const out = [];
      for (let from = 0; from < list.length; from += size) {
        const to = Math.min(from + size, list.length);
        let low = -1, high = -1, least = Infinity, greatest = -Infinity;
        for (let k = from; k < to; k++) {
          const v = value(list[k]);
          if (v < least) { least = v; low = k; }
          if (v > greatest) { greatest = v; high = k; }
        }
        const kept = [from, low, high, to - 1].filter((k) => k >= 0).sort((a, b) => a - b);
        kept.forEach((k, n) => (n && k === kept[n - 1]) || out.push(list[k]));
      }
      return Int32Array.from(out);
    });
  }

  // The list to draw where `count` of its places are visible on `pixels`.
  of(count, pixels) {
    let level = this.list;
    BUCKETS.forEach((size, n) => { if (this.levels[n] && count / size >= pixels * 2) level = this.levels[n]; });
    return level;
  }
}

// Plain data, thinned: of each bucket the stretches without a gap, as time, lowest and highest number.
function stretches(c, list, size) {
  const time = [], low = [], high = [];
  for (let from = 0; from < list.length; from += size) {
    const to = Math.min(from + size, list.length);
    let a = NaN, b = NaN, t = 0;
    const put = () => { if (a === a) { time.push(t); low.push(a); high.push(b); } };
    for (let k = from; k < to; k++) {
      const i = list[k];
      if (c.seq[i] <= b && c.end[i] >= a) { a = Math.min(a, c.seq[i]); b = Math.max(b, c.end[i]); }
      else { put(); a = c.seq[i]; b = c.end[i]; t = c.time[i]; }
    }
    put();
  }
  return { time: Float64Array.from(time), low: Float64Array.from(low), high: Float64Array.from(high) };
}

// What is made once of a connection.
function made(c, name, make) {
  const kept = c.kept || (c.kept = new Map());
  if (!kept.has(name)) kept.set(name, make());
  return kept.get(name);
}

// One side's list as it is to be drawn, by a value called `name`, where it is visible on `pixels`.
function thinned(c, list, name, value, view, pixels) {
  const count = firstAt(c, list, view.x1) - firstAt(c, list, view.x0);
  if (count < pixels * 2 * BUCKETS[0]) return list;
  const side = list === c.sent[0] ? 0 : 1;
  return made(c, name + side, () => new Levels(list, value)).of(count, pixels);
}

class Painter {
  constructor(context, c, side, view, layers, colors, names) {
    Object.assign(this, { g: context, c, side, view, layers, colors, names });
  }

  x(t) { return this.p.left + (t - this.view.x0) / (this.view.x1 - this.view.x0) * this.p.width; }
  y(v) { return this.p.top + this.p.height - (v - this.y0) / (this.y1 - this.y0) * this.p.height; }

  // `list` as it is to be drawn by a value called `name`.
  thin(list, name, value) {
    return thinned(this.c, list, name, value, this.view, this.p.width);
  }

  // The places of `list` that are visible, with one more on either side.
  visible(list) {
    const from = firstAt(this.c, list, this.view.x0), to = firstAt(this.c, list, this.view.x1);
    return [Math.max(0, from - 1), Math.min(list.length, to + 1)];
  }

  begin(panel, y0, y1, title, label, unit) {
    const g = this.g;
    this.p = panel;
    this.y0 = y0;
    this.y1 = y1 > y0 ? y1 : y0 + 1;
    g.font = "11px system-ui, DejaVu Sans, sans-serif";
    g.lineWidth = 1;
    g.strokeStyle = this.colors.grid;
    g.fillStyle = this.colors.soft;
    g.textBaseline = "middle";
    g.textAlign = "right";
    for (const v of ticks(this.y0, this.y1, Math.max(2.5, panel.height / 42)).list) {
      const y = Math.round(this.y(v)) + 0.5;
      this.stroke([[panel.left, y, panel.left + panel.width, y]]);
      g.fillText(unit(v), panel.left - 7, y);
    }
    const across = ticks(this.view.x0, this.view.x1, panel.width / 105);
    g.textAlign = "center";
    for (const t of across.list) {
      const x = Math.round(this.x(t)) + 0.5;
      this.stroke([[x, panel.top, x, panel.top + panel.height]]);
      if (label) g.fillText(seconds(t, across.step) + " s", x, panel.top + panel.height + 12);
    }
    g.strokeStyle = this.colors.line;
    g.strokeRect(panel.left + 0.5, Math.round(panel.top) + 0.5, panel.width, Math.round(panel.height));
    g.save();
    g.beginPath();
    g.rect(panel.left, panel.top, panel.width, panel.height);
    g.clip();
    this.title = title;
  }

  finish() {
    const g = this.g;
    g.font = "600 11px system-ui, DejaVu Sans, sans-serif";
    g.textAlign = "left";
    g.textBaseline = "top";
    const width = g.measureText(this.title).width;
    g.globalAlpha = 0.8;
    g.fillStyle = this.colors.paper;
    g.fillRect(this.p.left + 3, this.p.top + 3, width + 8, 15);
    g.globalAlpha = 1;
    g.fillStyle = this.colors.soft;
    g.fillText(this.title, this.p.left + 7, this.p.top + 5);
    g.restore();
  }

  stroke(lines) {
    const g = this.g;
    g.beginPath();
    for (const [a, b, c, d] of lines) { g.moveTo(a, b); g.lineTo(c, d); }
    g.stroke();
  }

  // A line that goes level to each next point and then up or down; a column that holds many
  // points is one stroke from its lowest to its highest.
  steps(all, name, value, color, width) {
    const list = this.thin(all, name, value), g = this.g, [from, to] = this.visible(list);
    g.strokeStyle = color;
    g.lineWidth = width || 1.2;
    g.beginPath();
    let lastY = NaN, column = NaN, low = 0, high = 0;
    for (let k = from; k < to; k++) {
      const i = list[k], v = value(i);
      if (!(v === v)) continue;
      const x = Math.max(-10, Math.min(this.x(this.c.time[i]), 1e5)), y = this.y(v);
      const pixel = Math.floor(x);
      if (!(lastY === lastY)) { g.moveTo(x, y); lastY = y; column = pixel; low = high = y; continue; }
      if (pixel !== column) {
        if (high > low) { g.moveTo(column + 0.5, low); g.lineTo(column + 0.5, high); g.moveTo(column + 0.5, lastY); }
        g.lineTo(x, lastY);
        g.lineTo(x, y);
        column = pixel;
        low = Math.min(lastY, y);
        high = Math.max(lastY, y);
      } else {
        low = Math.min(low, y);
        high = Math.max(high, y);
      }
      lastY = y;
    }
    if (lastY === lastY) {
      if (high > low) { g.moveTo(column + 0.5, low); g.lineTo(column + 0.5, high); g.moveTo(column + 0.5, lastY); }
      g.lineTo(this.p.left + this.p.width, lastY);
    }
    g.stroke();
    g.lineWidth = 1;
  }

  sequence(panel) {
    const c = this.c, sent = c.sent[this.side], acks = c.sent[1 - this.side];
    this.begin(panel, this.view.y0, this.view.y1, "sequence number, bytes", true, grouped);
    if (this.layers.edge) this.steps(acks, "edge", (i) => c.ack[i] + c.window[i], this.colors.edge);
    if (this.layers.ack) this.steps(acks, "ack", (i) => c.ack[i], this.colors.ack);
    this.acknowledgements(acks);
    this.data(sent);
    this.finish();
  }

  // What is drawn once for a small square of pixels, however many there are.
  once(across, down) {
    const taken = new Set();
    return (x, y) => {
      const key = Math.floor(x / across) * 65536 + Math.floor(y / down);
      return !taken.has(key) && taken.add(key);
    };
  }

  data(sent) {
    const c = this.c, g = this.g, visible = this.visible(sent), count = visible[1] - visible[0];
    const dense = count > this.p.width * 1.5;
    const plain = [], arrows = [], again = [], late = [], other = [], letters = [], diamonds = [];
    const free = this.once(11, 9);
    let column = NaN, low = 0, high = 0;
    const flush = () => { if (column === column) plain.push([column + 0.5, low, column + 0.5, high]); };
    // Far out, plain data comes as stretches, and only what has a sign one by one.
    const far = BUCKETS.filter((size) => count / size >= this.p.width * 2).pop();
    if (far && this.layers.data) {
      const plainly = made(c, "plain" + this.side, () => sent.filter((i) => this.plain(i)));
      const s = made(c, "stretches" + far + this.side, () => stretches(c, plainly, far));
      const start = this.view.x0 - (this.view.x1 - this.view.x0) / this.p.width * 2;
      for (let k = lowest(s.time, start); k < s.time.length && s.time[k] <= this.view.x1; k++) {
        const y0 = this.y(s.low[k]), y1 = this.y(s.high[k]), pixel = Math.floor(this.x(s.time[k]));
        if (y1 > this.p.top + this.p.height + 20 || y0 < this.p.top - 20) continue;
        if (pixel === column && y0 >= high - 2 && y1 <= low + 2) { low = Math.max(low, y0); high = Math.min(high, y1); }
        else { flush(); column = pixel; low = y0; high = y1; }
      }
      flush();
      column = NaN;
    }
    const list = far ? made(c, "signed" + this.side, () => sent.filter((i) => !this.plain(i))) : sent;
    const [from, to] = this.visible(list);
    for (let k = from; k < to; k++) {
      const i = list[k], kind = this.names.classes[c.kind[i]];
      if (c.end[i] <= c.seq[i] && kind !== "reset") continue;
      const x = this.x(c.time[i]), y0 = this.y(c.seq[i]), y1 = this.y(c.end[i]);
      if (y1 > this.p.top + this.p.height + 20 || y0 < this.p.top - 20) continue;
      const flags = c.flags[i], letter = this.letter(i, kind);
      if (kind === "data" && !letter) {
        if (!this.layers.data) continue;
        if (dense) {
          const pixel = Math.floor(x);
          if (pixel !== column) { flush(); column = pixel; low = y0; high = y1; }
          // Not over a gap: that would look like data.
          else if (y0 <= low + 2 && y0 >= high - 2 || y1 <= low && y1 >= high) { low = Math.max(low, y0); high = Math.min(high, y1); }
          else { flush(); low = y0; high = y1; }
          continue;
        }
        plain.push([x, y0, x, Math.min(y1, y0 - 1)]);
        if (y0 - y1 > 5) arrows.push([x, y0, y1]);
        if (flags & FLAG.psh && this.layers.push && y0 - y1 > 3) diamonds.push([x, y1]);
        continue;
      }
      const where = kind === "again" ? again : kind === "order" ? late : other;
      if (kind === "again" && !this.layers.again || kind === "order" && !this.layers.order) continue;
      where.push([x, y0, x, Math.min(y1, y0 - 2)]);
      if (letter && free(x, y1)) letters.push([x, y1 - 3, letter, kind]);
    }
    flush();
    const lines = (list, color, width) => { g.strokeStyle = color; g.lineWidth = width; this.stroke(list); };
    lines(plain, this.colors.data, dense ? 1 : 1.3);
    g.fillStyle = this.colors.data;
    g.beginPath();
    for (const [x, y0, y1] of arrows) {
      g.moveTo(x - 2.6, y1 + 4); g.lineTo(x, y1); g.lineTo(x + 2.6, y1 + 4);
      g.moveTo(x - 2.6, y0 - 4); g.lineTo(x, y0); g.lineTo(x + 2.6, y0 - 4);
    }
    g.lineWidth = 1;
    g.stroke();
    g.fillStyle = this.colors.push;
    g.beginPath();
    for (const [x, y] of diamonds) { g.moveTo(x - 2.6, y); g.lineTo(x, y - 2.6); g.lineTo(x + 2.6, y); g.lineTo(x, y + 2.6); }
    g.fill();
    lines(late, this.colors.order, 2);
    lines(again, this.colors.again, 2);
    lines(other, this.colors.sign, 1.6);
    g.font = "700 10px system-ui, DejaVu Sans, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "bottom";
    for (const [x, y, letter, kind] of letters) {
      g.fillStyle = kind === "again" ? this.colors.again : kind === "order" ? this.colors.order : this.colors.sign;
      g.fillText(letter, x, y);
    }
  }

  // Data that no layer can give a sign.
  plain(i) {
    const c = this.c, signs = FLAG.rst | FLAG.syn | FLAG.fin;
    return this.names.classes[c.kind[i]] === "data" && !(c.flags[i] & signs) && !(c.marks[i] & (MARK.ce | MARK.cwr)) && c.end[i] > c.seq[i];
  }

  letter(i, kind) {
    const c = this.c, flags = c.flags[i], marks = c.marks[i];
    const again = kind === "again" ? this.names.letters[c.kind[i]] + (marks & MARK.needless ? "\u00d7" : "") : "";
    if (flags & FLAG.rst) return this.layers.sign ? "RST" : "";
    if (flags & FLAG.syn) return this.layers.sign ? (again + " SYN").trim() : again;
    if (flags & FLAG.fin) return this.layers.sign ? (again + " FIN").trim() : again;
    if (again) return again;
    if (kind === "order") return "O";
    if (kind === "other") return this.layers.sign ? this.names.letters[c.kind[i]] : "";
    if (marks & MARK.ce && this.layers.sign) return "CE";
    return marks & MARK.cwr && this.layers.sign ? "CWR" : "";
  }

  acknowledgements(acks) {
    const c = this.c, g = this.g, drawn = MARK.ece | MARK.zero;
    acks = made(c, "signs" + this.side, () => acks.filter((i) => c.duplicate[i] || c.sackAt[i + 1] > c.sackAt[i] || c.marks[i] & drawn));
    const [from, to] = this.visible(acks);
    const ticked = [], blocks = [], letters = [];
    const free = this.once(3, 3), freeLetter = this.once(11, 9);
    for (let k = from; k < to; k++) {
      const i = acks[k];
      if (!(c.ack[i] === c.ack[i])) continue;
      const x = this.x(c.time[i]), y = this.y(c.ack[i]);
      if (this.layers.sack && c.sackAt[i + 1] > c.sackAt[i]) {
        let top = y;
        for (let b = c.sackAt[i]; b < c.sackAt[i + 1]; b += 2) {
          const y0 = this.y(c.sack[b]), y1 = this.y(c.sack[b + 1]);
          if (free(x, y1) || free(x, y0)) blocks.push([x, y0, x, y1], [x - 2, y0, x + 2, y0], [x - 2, y1, x + 2, y1]);
          top = Math.min(top, y1);
        }
        if (freeLetter(x, top)) letters.push([x, top - 2, c.marks[i] & MARK.dsack ? "D" : "S", this.colors.sack]);
      }
      if (this.layers.ack && c.duplicate[i]) {
        if (free(x, y)) ticked.push([x, y, x, y + 5]);
        if (c.duplicate[i] === 3 && freeLetter(x, y + 12)) letters.push([x, y + 17, "3", this.colors.ack]);
      }
      if (this.layers.sign && c.marks[i] & MARK.ece && freeLetter(x, y + 12)) letters.push([x, y + 17, "ECE", this.colors.sign]);
      if (this.layers.edge && c.marks[i] & MARK.zero && freeLetter(x, y)) {
        letters.push([x, this.y(c.ack[i] + c.window[i]) - 2, "Z", this.colors.edge]);
      }
    }
    g.lineWidth = 1.3;
    g.strokeStyle = this.colors.sack;
    this.stroke(blocks);
    g.strokeStyle = this.colors.ack;
    this.stroke(ticked);
    g.font = "700 10px system-ui, DejaVu Sans, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "bottom";
    for (const [x, y, letter, color] of letters) { g.fillStyle = color; g.fillText(letter, x, y); }
  }

  // Payload a second in bins of a few pixels, with what was sent again in it, and the mean so far.
  throughput(panel) {
    const c = this.c, sent = c.sent[this.side], { x0, x1 } = this.view;
    const bins = Math.max(1, Math.floor(panel.width / 3)), width = (x1 - x0) / bins;
    const all = new Float64Array(bins), again = new Float64Array(bins);
    const sums = made(c, "sums" + this.side, () => this.sums(sent));
    // Its end counts with the last bin.
    let from = firstAt(c, sent, x0);
    for (let bin = 0; bin < bins; bin++) {
      let to = firstAt(c, sent, x0 + (bin + 1) * width);
      if (bin === bins - 1) while (to < sent.length && c.time[sent[to]] <= x1) to++;
      all[bin] = (sums.all[to] - sums.all[from]) * 8 / width;
      again[bin] = (sums.again[to] - sums.again[from]) * 8 / width;
      from = to;
    }
    this.begin(panel, 0, all.reduce((a, b) => Math.max(a, b), 1) * 1.15, "throughput, a bin of " + duration(width) + ", and its mean", false, (v) => scaled(v, "bit/s"));
    const g = this.g, bar = panel.width / bins, base = panel.top + panel.height;
    for (const [list, color] of [[all, this.colors.rate], [again, this.colors.again]]) {
      g.fillStyle = color;
      g.globalAlpha = list === all ? 0.65 : 1;
      list.forEach((v, b) => v && g.fillRect(panel.left + b * bar, this.y(v), Math.max(1, bar - 0.5), base - this.y(v)));
    }
    g.globalAlpha = 1;
    this.mean(sent);
    this.finish();
  }

  // Payload before each place of the list, and what of it was sent again.
  sums(sent) {
    const c = this.c, all = new Float64Array(sent.length + 1), again = new Float64Array(sent.length + 1);
    sent.forEach((i, k) => {
      all[k + 1] = all[k] + c.length[i];
      again[k + 1] = again[k] + (this.names.classes[c.kind[i]] === "again" ? c.length[i] : 0);
    });
    return { all, again };
  }

  mean(sent) {
    const c = this.c;
    if (!sent.length) return;
    const key = "mean" + this.side;
    if (!c[key]) {
      let sum = 0, first = NaN;
      c[key] = new Float64Array(c.count);
      for (const i of sent) {
        if (c.length[i] && !(first === first)) first = c.time[i];
        sum += c.length[i];
        c[key][i] = c.time[i] > first ? sum * 8 / (c.time[i] - first) : NaN;
      }
    }
    this.steps(sent, "mean", (i) => c[key][i], this.colors.mean, 1.4);
  }

  inFlight(panel) {
    const c = this.c, sent = c.sent[this.side], acks = c.sent[1 - this.side];
    const flight = (i) => c.flight[i], window = (i) => (c.flags[i] & FLAG.syn ? NaN : c.window[i]);
    this.p = panel;
    let most = 1;
    const flights = this.thin(sent, "flight", flight), windows = this.thin(acks, "window", window);
    for (let [k, to] = this.visible(flights); k < to; k++) most = Math.max(most, c.flight[flights[k]]);
    let least = Infinity, largest = 0;
    for (let [k, to] = this.visible(windows); k < to; k++) {
      const v = window(windows[k]);
      if (!(v >= 0)) continue;
      least = Math.min(least, v);
      largest = Math.max(largest, v);
    }
    // The window is shown as far as that does not flatten what is in flight.
    const top = Math.max(most, Math.min(largest, most * 5));
    this.begin(panel, 0, top * 1.15, "in flight, and the window advertised", false, (v) => scaled(v, "B"));
    this.steps(acks, "window", window, this.colors.edge);
    this.steps(sent, "flight", flight, this.colors.flight);
    if (top < least && least < Infinity) {
      this.g.fillStyle = this.colors.edge;
      this.g.textAlign = "right";
      this.g.textBaseline = "top";
      this.g.fillText("window at least " + scaled(least, "B") + " \u2191", panel.left + panel.width - 6, panel.top + 5);
    }
    this.finish();
  }

  roundTrips(panel) {
    this.p = panel;
    const c = this.c, g = this.g, acks = this.thin(c.sent[1 - this.side], "rtt", (i) => c.rtt[i]);
    const [from, to] = this.visible(acks);
    let most = 0;
    for (let k = from; k < to; k++) if (c.rtt[acks[k]] > most) most = c.rtt[acks[k]];
    this.begin(panel, 0, (most || 1e-3) * 1.15, "RTT", true, (v) => duration(v));
    g.fillStyle = this.colors.rtt;
    const free = new Set();
    for (let k = from; k < to; k++) {
      const v = c.rtt[acks[k]];
      if (!(v === v)) continue;
      const x = Math.round(this.x(c.time[acks[k]])), y = Math.round(this.y(v)), key = x * 65536 + y;
      if (free.has(key)) continue;
      free.add(key);
      g.fillRect(x - 1, y - 1, 2.5, 2.5);
    }
    this.finish();
  }
}

// The first place of a sorted array that is not below `value`.
function lowest(array, value) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}
