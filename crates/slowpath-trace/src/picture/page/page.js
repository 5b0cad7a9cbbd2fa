// SPDX-License-Identifier: Apache-2.0
// The page around the graph: connections, findings, pointer, keys. `REPORT` is defined by the
// page that html.rs writes.
"use strict";

const LAYERS = [
  ["data", "data", "--data"], ["ack", "ACK", "--ack"], ["edge", "window edge", "--edge"], ["sack", "SACK", "--sack"],
  ["again", "sent again (R)", "--again"], ["order", "out of order (O)", "--order"], ["push", "PUSH", "--push"],
  ["sign", "SYN, FIN, RST, ECN", "--sign"],
];
const byId = (id) => document.getElementById(id);
const canvas = byId("graph"), stage = byId("stage"), tip = byId("tip");
const state = { n: 0, side: 0, c: null, view: null, views: [], layers: {}, point: -1, band: null, drag: null, colors: {} };
for (const [key] of LAYERS) state.layers[key] = true;

function make(tag, text, parent) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "soft", "line", "grid", "data", "ack", "edge", "sack", "again", "order", "sign", "push", "rate", "mean", "rtt", "flight", "accent", "shade"]) {
    state.colors[name] = style.getPropertyValue("--" + name).trim();
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColors();
  redraw();
}

// ---- what is shown

function whole() {
  const c = state.c, length = c.count ? c.time[c.count - 1] : 0;
  const margin = Math.max(length * 0.02, 1e-6);
  return fit({ x0: -margin, x1: length + margin, fitted: true });
}

// The sequence numbers that the time shows, the window's edge too where it is near.
function fit(view) {
  const c = state.c, side = state.side;
  let low = Infinity, high = -Infinity, edge = -Infinity;
  const span = (list) => [Math.max(0, firstAt(c, list, view.x0) - 1), Math.min(list.length, firstAt(c, list, view.x1) + 1)];
  const inside = (i) => c.time[i] >= view.x0 && c.time[i] <= view.x1;
  const each = (all, name, value, visit) => {
    const list = thinned(c, all, name, value, view, 1000), [from, to] = span(list);
    for (let k = from; k < to; k++) visit(list[k]);
  };
  const visible = (i) => inside(i) && c.end[i] > c.seq[i], sent = c.sent[side], acks = c.sent[1 - side];
  const data = (value) => (i) => (c.end[i] > c.seq[i] ? value[i] : NaN);
  each(sent, "seq", data(c.seq), (i) => { if (visible(i)) low = Math.min(low, c.seq[i]); });
  each(sent, "end", data(c.end), (i) => { if (visible(i)) high = Math.max(high, c.end[i]); });
  each(acks, "ack", (i) => c.ack[i], (i) => {
    if (!(c.ack[i] === c.ack[i])) return;
    low = Math.min(low, c.ack[i]);
    high = Math.max(high, c.ack[i]);
  });
  each(acks, "edge", (i) => c.ack[i] + c.window[i], (i) => {
    if (!(c.flags[i] & FLAG.syn) && c.ack[i] === c.ack[i]) edge = Math.max(edge, c.ack[i] + c.window[i]);
  });
  if (low > high) [low, high] = [0, 1];
  if (state.layers.edge && edge > high && edge - low < (high - low) * 2.5) high = edge;
  const margin = Math.max((high - low) * 0.06, 2);
  return { x0: view.x0, x1: view.x1, y0: low - margin, y1: high + margin, fitted: true };
}

function show(view, remember) {
  if (remember !== false && state.view) state.views.push(state.view);
  if (state.views.length > 100) state.views.shift();
  const least = 1e-7;
  if (view.x1 - view.x0 < least) view.x1 = view.x0 + least;
  state.view = view.fitted ? fit(view) : view;
  redraw();
}

function zoom(factor, at, both) {
  const v = state.view, middle = at === undefined ? (v.x0 + v.x1) / 2 : at;
  const next = { ...v, x0: middle - (middle - v.x0) * factor, x1: middle + (v.x1 - middle) * factor };
  if (both !== undefined) {
    next.fitted = false;
    next.y0 = both - (both - v.y0) * factor;
    next.y1 = both + (v.y1 - both) * factor;
  }
  show(next, false);
}

function move(dx, dy) {
  const v = state.view;
  show({ x0: v.x0 + dx, x1: v.x1 + dx, y0: v.y0 + (dy || 0), y1: v.y1 + (dy || 0), fitted: v.fitted && !dy }, false);
}

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; draw(); });
}

function draw() {
  const ratio = window.devicePixelRatio || 1, width = stage.clientWidth, height = stage.clientHeight;
  if (!state.c || !width || !height) return;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const g = canvas.getContext("2d");
  state.panels = panels(width, height);
  graphs(ratio, width, height);
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.drawImage(paper, 0, 0);
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  band(g);
  pointer(g);
  if (state.drag && state.drag.box) {
    const [a, b, c, d] = state.drag.box;
    g.fillStyle = state.colors.shade;
    g.strokeStyle = state.colors.accent;
    g.fillRect(a, b, c - a, d - b);
    g.strokeRect(a, b, c - a, d - b);
  }
}

// The graphs are drawn once for a view, and not for each move of the pointer.
const paper = document.createElement("canvas");
let drawn = "";
function graphs(ratio, width, height) {
  const v = state.view;
  const now = [state.n, state.side, v.x0, v.x1, v.y0, v.y1, ratio, width, height, document.documentElement.dataset.theme, JSON.stringify(state.layers)].join();
  if (now === drawn) return;
  drawn = now;
  paper.width = canvas.width;
  paper.height = canvas.height;
  const g = paper.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.fillStyle = state.colors.paper;
  g.fillRect(0, 0, width, height);
  const painter = new Painter(g, state.c, state.side, v, state.layers, state.colors, REPORT);
  painter.sequence(state.panels[0]);
  painter.throughput(state.panels[1]);
  painter.inFlight(state.panels[2]);
  painter.roundTrips(state.panels[3]);
}

// The time of the finding that was chosen.
function band(g) {
  if (!state.band) return;
  const v = state.view, p = state.panels[0], last = state.panels[3];
  const x = (t) => Math.max(p.left, Math.min(p.left + p.width, p.left + (t - v.x0) / (v.x1 - v.x0) * p.width));
  const [from, to] = state.band;
  g.fillStyle = state.colors.shade;
  g.fillRect(x(from), p.top, Math.max(1.5, x(to) - x(from)), last.top + last.height - p.top);
}

// A ring around the segment that is looked at, and a hair line through all graphs.
function pointer(g) {
  if (state.point < 0) return;
  const c = state.c, i = state.point, p = state.panels[0], v = state.view;
  const x = p.left + (c.time[i] - v.x0) / (v.x1 - v.x0) * p.width;
  const at = (n) => p.top + p.height - (n - v.y0) / (v.y1 - v.y0) * p.height;
  if (x < p.left || x > p.left + p.width) return;
  const mine = c.side[i] === state.side;
  const y = mine ? at((c.seq[i] + c.end[i]) / 2) : at(c.ack[i]);
  const tall = mine ? Math.abs(at(c.seq[i]) - at(c.end[i])) / 2 : 0;
  g.strokeStyle = state.colors.accent;
  g.globalAlpha = 0.5;
  g.beginPath();
  g.moveTo(x, p.top);
  g.lineTo(x, state.panels[3].top + state.panels[3].height);
  g.stroke();
  g.globalAlpha = 1;
  g.lineWidth = 1.5;
  g.beginPath();
  g.ellipse(x, y, 6, Math.max(6, tall + 3), 0, 0, 7);
  g.stroke();
  g.lineWidth = 1;
}

// ---- one segment

function words(i) {
  const c = state.c, names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
  const flags = names.filter((_, bit) => c.flags[i] & (1 << bit)).join(" ");
  const marks = REPORT.marks.filter((_, bit) => Math.floor(c.marks[i] / 2 ** bit) % 2);
  const ends = REPORT.connections[state.n].ends;
  const rows = [
    ["frame", grouped(c.frame[i]) + (c.segments[i] > 1 ? " and " + (c.segments[i] - 1) + " more like it" : "")],
    ["time", seconds(c.time[i]) + " s"], ["from", ends[c.side[i]]],
    ["sequence", grouped(c.seq[i]) + (c.end[i] > c.seq[i] ? " to " + grouped(c.end[i]) : "")],
    ["length", grouped(c.length[i]) + " bytes"], ["flags", flags],
  ];
  if (c.ack[i] === c.ack[i]) rows.push(["acknowledges", grouped(c.ack[i]) + (c.duplicate[i] ? ", duplicate " + c.duplicate[i] : "")]);
  if (c.window[i] === c.window[i]) rows.push(["window", grouped(c.window[i])]);
  for (let b = c.sackAt[i]; b < c.sackAt[i + 1]; b += 2) rows.push(["SACK", grouped(c.sack[b]) + " to " + grouped(c.sack[b + 1])]);
  if (c.length[i]) rows.push(["in flight", grouped(c.flight[i])]);
  if (c.rtt[i] === c.rtt[i]) rows.push(["RTT sample", duration(c.rtt[i])]);
  return { title: REPORT.kinds[c.kind[i]], marks, rows };
}

function point(i, x, y, aside) {
  state.point = i;
  if (i < 0) {
    tip.hidden = true;
    redraw();
    return;
  }
  const said = words(i);
  tip.replaceChildren();
  make("b", said.title, tip);
  if (said.marks.length) make("div", said.marks.join(", "), tip);
  const list = make("dl", undefined, tip);
  for (const [name, value] of said.rows) { make("dt", name, list); make("dd", value, list); }
  byId("status").textContent = said.title + ": " + said.rows.map((r) => r.join(" ")).concat(said.marks).join(", ");
  tip.hidden = false;
  const width = tip.offsetWidth, height = tip.offsetHeight;
  // Without a pointer the text stands aside, where the graph is empty: above what rises.
  const p = state.panels[0], left = x + 16 + width > stage.clientWidth ? x - width - 16 : x + 16;
  tip.style.left = Math.max(0, aside ? (x > p.left + p.width / 2 ? p.left + 8 : p.left + p.width - width - 8) : left) + "px";
  tip.style.top = Math.max(0, aside ? p.top + 24 : Math.min(y + 12, stage.clientHeight - height - 4)) + "px";
  redraw();
}

// The segment nearest to a place of the first graph; others have only a time.
function nearest(x, y) {
  const c = state.c, v = state.view, p = state.panels[0];
  const time = (px) => v.x0 + (px - p.left) / p.width * (v.x1 - v.x0);
  const py = (n) => p.top + p.height - (n - v.y0) / (v.y1 - v.y0) * p.height;
  const inFirst = y < p.top + p.height + 8;
  let best = -1, least = inFirst ? 14 : 40;
  for (const side of [0, 1]) {
    const list = c.sent[side], to = time(x + least);
    let tried = 0;
    for (let k = firstAt(c, list, time(x - least)); k < list.length && c.time[list[k]] <= to && tried < 20000; k++, tried++) {
      const i = list[k], mine = side === state.side;
      if (mine && c.end[i] <= c.seq[i]) continue;
      const dx = Math.abs(p.left + (c.time[i] - v.x0) / (v.x1 - v.x0) * p.width - x);
      let dy = 0;
      if (inFirst) {
        const low = mine ? py(c.seq[i]) : py(c.ack[i]), high = mine ? py(c.end[i]) : low;
        dy = y > low ? y - low : y < high ? high - y : 0;
      }
      const away = Math.hypot(dx, dy);
      if (away < least) { least = away; best = i; }
    }
  }
  return best;
}

function place(i) {
  const c = state.c, v = state.view, p = state.panels[0];
  const at = c.side[i] === state.side ? c.end[i] : c.ack[i];
  return [p.left + (c.time[i] - v.x0) / (v.x1 - v.x0) * p.width, p.top + p.height - (at - v.y0) / (v.y1 - v.y0) * p.height];
}

function lookAt(i) {
  const v = state.view, c = state.c;
  if (c.time[i] < v.x0 || c.time[i] > v.x1) {
    const half = (v.x1 - v.x0) / 2;
    show({ ...v, x0: c.time[i] - half, x1: c.time[i] + half, fitted: true }, false);
    draw();
  }
  const [x, y] = place(i);
  point(i, x, y, true);
}

function step(by, wanted) {
  const c = state.c;
  for (let i = state.point < 0 ? (by > 0 ? -1 : c.count) : state.point; ;) {
    i += by;
    if (i < 0 || i >= c.count) return;
    if (!wanted || wanted(i)) return lookAt(i);
  }
}

function marked(i) {
  const c = state.c, kind = REPORT.classes[c.kind[i]];
  return c.side[i] === state.side ? kind === "again" || kind === "order" || c.flags[i] & FLAG.rst || c.marks[i] & MARK.ce
    : c.marks[i] & (MARK.zero | MARK.ece);
}

// ---- which connection, which direction

const unpacked = new Map();
function connection(n, side) {
  const info = REPORT.connections[n];
  if (!unpacked.has(n)) unpacked.set(n, unpack(byId("c" + n).textContent.trim(), info.points));
  Object.assign(state, { n, c: unpacked.get(n), views: [], point: -1, band: null });
  tip.hidden = true;
  for (const s of [0, 1]) byId("side" + s).textContent = info.ends[s] + " \u2192 " + info.ends[1 - s] + " (" + info.sent[s] + ")";
  [...byId("connections").querySelectorAll("button")].forEach((b, k) => b.setAttribute("aria-current", k === n));
  findings();
  byId("status").textContent = info.note;
  direction(side === undefined ? info.side : side);
}

function direction(side) {
  state.side = side;
  for (const s of [0, 1]) byId("side" + s).setAttribute("aria-pressed", s === side);
  state.view = whole();
  state.views = [];
  redraw();
}

function findings() {
  const list = byId("findings"), all = REPORT.connections[state.n].findings;
  list.replaceChildren();
  byId("findings-title").hidden = !all.length;
  all.forEach((finding, k) => {
    const button = make("button", undefined, make("li", undefined, list));
    make("span", finding.text, button);
    make("small", "at " + seconds(finding.from) + " s" + (finding.frames.length ? ", frame " + finding.frames.slice(0, 3).join(", ") : ""), button);
    button.addEventListener("click", () => lead(k));
  });
}

function lead(k) {
  const finding = REPORT.connections[state.n].findings[k], c = state.c;
  if (finding.side !== null && finding.side !== state.side) direction(finding.side);
  state.band = [finding.from, finding.to];
  const length = Math.max(finding.to - finding.from, 1e-4), room = length * 0.35;
  show({ x0: finding.from - room, x1: finding.to + room, fitted: true });
  draw();
  const i = c.frame.indexOf(finding.frames[0]);
  if (i >= 0) lookAt(i);
  canvas.focus({ preventScroll: true });
}

// ---- pointer and keys

function at(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function values(x, y) {
  const v = state.view, p = state.panels[0];
  return [v.x0 + (x - p.left) / p.width * (v.x1 - v.x0), v.y0 + (p.top + p.height - y) / p.height * (v.y1 - v.y0)];
}

canvas.addEventListener("pointerdown", (e) => {
  const [x, y] = at(e);
  canvas.setPointerCapture(e.pointerId);
  state.drag = { x, y, moving: e.shiftKey || e.button === 1, view: state.view };
  if (e.button === 1) e.preventDefault();
});
canvas.addEventListener("pointermove", (e) => {
  const [x, y] = at(e), d = state.drag, p = state.panels && state.panels[0];
  if (!p) return;
  if (!d) { point(nearest(x, y), x, y); return; }
  if (d.moving) {
    const [ax, ay] = values(d.x, d.y), [bx, by] = values(x, y), v = state.view;
    show({ ...v, x0: v.x0 + ax - bx, x1: v.x1 + ax - bx, y0: v.y0 + ay - by, y1: v.y1 + ay - by, fitted: false }, false);
    Object.assign(d, { x, y });
    return;
  }
  const flat = Math.abs(y - d.y) < 8 || d.y > p.top + p.height;
  d.box = Math.abs(x - d.x) < 4 ? null : flat ? [d.x, p.top, x, state.panels[3].top + state.panels[3].height] : [d.x, d.y, x, y];
  d.flat = flat;
  redraw();
});
canvas.addEventListener("pointerup", () => {
  const d = state.drag;
  state.drag = null;
  if (!d || !d.box) return;
  const [a, b] = values(Math.min(d.box[0], d.box[2]), Math.max(d.box[1], d.box[3]));
  const [c, e] = values(Math.max(d.box[0], d.box[2]), Math.min(d.box[1], d.box[3]));
  show(d.flat ? { x0: a, x1: c, fitted: true } : { x0: a, x1: c, y0: b, y1: e, fitted: false });
});
canvas.addEventListener("pointerleave", () => { if (!state.drag) point(-1); });
canvas.addEventListener("dblclick", back);
canvas.addEventListener("wheel", (e) => {
  e.preventDefault();
  const [x, y] = at(e), [t, s] = values(x, y);
  zoom(Math.exp(Math.max(-300, Math.min(300, e.deltaY)) / 400), t, e.ctrlKey ? s : undefined);
}, { passive: false });

function back() {
  if (state.views.length) { state.view = state.views.pop(); redraw(); }
}

function other(by) {
  const n = state.n + by;
  if (n >= 0 && n < REPORT.connections.length) connection(n);
}

const KEYS = {
  "ArrowRight": (e) => (e.shiftKey ? move((state.view.x1 - state.view.x0) / 8) : step(1, visibleHere)),
  "ArrowLeft": (e) => (e.shiftKey ? move(-(state.view.x1 - state.view.x0) / 8) : step(-1, visibleHere)),
  "ArrowUp": () => move(0, (state.view.y1 - state.view.y0) / 8),
  "ArrowDown": () => move(0, -(state.view.y1 - state.view.y0) / 8),
  "+": () => zoom(0.6, centre()), "=": () => zoom(0.6, centre()), "-": () => zoom(1 / 0.6, centre()),
  "0": () => { state.band = null; show(whole()); }, "Backspace": back, "n": () => step(1, marked), "p": () => step(-1, marked),
  "d": () => direction(1 - state.side), "t": turnTheme, "?": () => byId("keys").showModal(),
  "[": () => other(-1), "]": () => other(1), "Escape": () => { state.band = null; point(-1); },
};
function visibleHere(i) { return state.c.side[i] !== state.side || state.c.end[i] > state.c.seq[i]; }
function centre() {
  const i = state.point, v = state.view;
  return i >= 0 && state.c.time[i] >= v.x0 && state.c.time[i] <= v.x1 ? state.c.time[i] : undefined;
}
function turnTheme() { setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); }

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || byId("keys").open) return;
  const inGraph = document.activeElement === canvas || document.activeElement === document.body;
  const act = KEYS[e.key];
  if (act && (inGraph || !/^(Arrow|Backspace)/.test(e.key))) { e.preventDefault(); act(e); }
});

function start() {
  byId("title").textContent = REPORT.title;
  byId("summary").textContent = REPORT.summary;
  REPORT.connections.forEach((info, n) => {
    const button = make("button", undefined, make("li", undefined, byId("connections")));
    make("b", info.title, button);
    make("small", "#" + info.number + "  " + info.ends.join(" \u2192 "), button);
    button.addEventListener("click", () => connection(n));
  });
  for (const [key, text, color] of LAYERS) {
    const label = make("label", undefined, byId("layers")), box = make("input", undefined, label);
    Object.assign(box, { type: "checkbox", checked: true });
    make("i", undefined, label).style.background = "var(" + color + ")";
    make("span", text, label);
    box.addEventListener("change", () => {
      state.layers[key] = box.checked;
      if (state.view.fitted) state.view = fit(state.view);
      redraw();
    });
  }
  const click = (id, act) => byId(id).addEventListener("click", act);
  click("side0", () => direction(0));
  click("side1", () => direction(1));
  click("back", back);
  click("whole", KEYS["0"]);
  click("closer", () => zoom(0.6, centre()));
  click("farther", () => zoom(1 / 0.6, centre()));
  click("later-mark", () => step(1, marked));
  click("earlier-mark", () => step(-1, marked));
  click("theme", turnTheme);
  click("help", () => byId("keys").showModal());
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  new ResizeObserver(redraw).observe(stage);
  if (!REPORT.connections.length) { byId("status").textContent = "No connection to draw."; return; }
  // #connection,finding in the address leads to a place.
  const [n, k] = location.hash.slice(1).split(",").map(Number);
  connection(n > 0 && n <= REPORT.connections.length ? n - 1 : 0);
  if (k > 0 && REPORT.connections[state.n].findings[k - 1]) requestAnimationFrame(() => lead(k - 1));
}
start();
