"use strict";
// Draws the report from the numbers in the page. Tags are written as [tag] helpers, never as
// text with an end tag, so that this script can stand in a page.
const { summary, charts, colours } = JSON.parse(document.getElementById("data").textContent);
const $ = (selector, root = document) => root.querySelector(selector);
const LT = "\u003c";
const escaped = (text) =>
  String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
// One element as markup; what is inside is markup too.
const tag = (name, attributes = {}, inside = "") => {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([key, value]) => ` ${key}="${escaped(value)}"`);
  return `${LT}${name}${written.join("")}>${inside}${LT}/${name}>`;
};
const workloadName = (workload) => summary.workloads[workload].name;
// The same name has the same colour in every chart; beyond eight, dashes differ.
const colour = (name) => `var(--c${colours[name].colour})`;
const dashes = (name) => ["none", "6 4", "2 3", "9 3 2 3"][Math.min(3, colours[name].round)];
const workloadColour = (workload) => colour(workloadName(workload));

// ---- numbers for people ----
const trimmed = (value, digits) => String(Number(value.toPrecision(digits)));
// The unit in which the rounded value is not below 1.
const unit = (value, steps) => steps.find(([size]) => value >= size * 0.9995) || steps[steps.length - 1];
const scaled = (value, steps, digits) => {
  const [size, name] = unit(value, steps);
  return `${trimmed(value / size, digits)} ${name}`;
};
// Three digits, zeros too, for columns of a table.
const even = (value, steps) => {
  const [size, name] = unit(value, steps), n = value / size;
  return `${n.toFixed(n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2)} ${name}`;
};
const TIME = [[1e6, "s"], [1e3, "ms"], [1, "\u00b5s"], [1e-3, "ns"]];
const BYTES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
const RATE = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]];
const time = (us, digits = 3) => (us === 0 ? "0" : scaled(us, TIME, digits));
const bytes = (count, digits = 3) => (count === 0 ? "0" : scaled(count, BYTES, digits));
const rate = (bits) => (bits === 0 ? "0" : even(bits, RATE));
const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const percent = (share) =>
  share > 0 && share < 0.001 ? "< 0.1 %" : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

// ---- axes ----
// Ticks of a logarithmic axis: decades, with 2 and 5 between if there are few.
const logTicks = (low, high) => {
  const decades = Math.log10(high / low);
  const steps = decades > 3.5 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 3, 5, 7];
  const ticks = [];
  for (let e = Math.floor(Math.log10(low)) - 1; e <= Math.ceil(Math.log10(high)); e++)
    for (const step of steps) {
      const tick = step * 10 ** e;
      if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(tick);
    }
  return ticks;
};
const linearTicks = (low, high, most = 6) => {
  const rough = (high - low) / most || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * size).find((n) => n >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-9); n++) ticks.push(n * step);
  return ticks;
};
const log = (low, high) => {
  // Some room at both ends; a single value gets a decade around it.
  const pad = high > low * 1.5 ? Math.max(1.06, (high / low) ** 0.03) : 3;
  const [a, b] = [Math.log10(low / pad), Math.log10(high * pad)];
  const round = logTicks(low / pad, high * pad);
  // A narrow range: even steps say more than the few round numbers in it.
  const ticks = round.length > 3 ? round : linearTicks(low / pad, high * pad, 7).filter((tick) => tick > 0);
  return { at: (value) => (Math.log10(value) - a) / (b - a), ticks };
};
const linear = (low, high, most) => ({
  at: (value) => (value - low) / (high - low || 1),
  ticks: linearTicks(low, high, most),
});
// Shares from 0 to 1 with the slowest few spread out: 50, 90, 99, 99.9 % at equal steps.
const tail = (finest) => {
  const far = (share) => -Math.log10(Math.max(1 - share, finest));
  const ticks = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999].filter((t) => 1 - t > finest * 1.2);
  return { at: (share) => far(share) / -Math.log10(finest), ticks };
};

// ---- labels ----
// A text's width is estimated from its characters, on the wide side for the fonts of the style.
const CHARACTER = 7.7, LINE = 15, GAP = 8;
const textWidth = (text) => [...String(text)].length * CHARACTER;
// The texts of ticks, exact: as many digits as that takes.
const texts = (ticks, text) => {
  const exact = ticks.map((tick) => text(tick, 9)).join();
  for (let digits = 2; ; digits++) {
    const all = ticks.map((tick) => text(tick, digits));
    if (all.join() === exact || digits > 8) return all;
  }
};
// Places along a line, in their order, `need` from each other: each is moved as little as that takes
// and stays between `low` and `high`.
const separated = (places, need, low, high) => {
  const order = places.map((_, i) => i).sort((a, b) => places[a] - places[b]);
  const moved = [...places];
  let free = low;
  for (const i of order) free = (moved[i] = Math.max(moved[i], free)) + need;
  free = high;
  for (const i of order.reverse()) free = (moved[i] = Math.min(moved[i], free)) - need;
  return moved;
};

// ---- charts ----
const W = 560, SMALL = 400, RIGHT = 14, TOP = 12, BOTTOM = 44, TITLE = 20;
// A frame with axes; `draw` is given the two scales in pixels, and where the curves are. Margins follow
// from the labels; a label that would come too near to another is left out.
const frame = (o, draw) => {
  const [w, h] = [o.width || W, o.height || 330];
  const [xTexts, yTexts] = [texts(o.x.ticks, o.xText), texts(o.y.ticks, o.yText)];
  const [x0, x1, y0, y1] = [TITLE + Math.max(20, ...yTexts.map(textWidth)) + GAP, w - RIGHT, h - BOTTOM, TOP];
  const px = (value) => +(x0 + o.x.at(value) * (x1 - x0)).toFixed(2);
  const py = (value) => +(y0 + o.y.at(value) * (y1 - y0)).toFixed(2);
  let inside = "", end = -Infinity, above = Infinity;
  if (o.time && charts.warm_up_us > 0) {
    const until = px(Math.min(charts.warm_up_us, charts.end_us));
    inside += tag("rect", { class: "warm", x: x0, y: y1, width: until - x0, height: y0 - y1 });
  }
  o.y.ticks.forEach((tick, i) => {
    const y = py(tick);
    inside += tag("path", { class: "grid", d: `M${x0} ${y}H${x1}` });
    if (y + LINE > above) return;
    above = y;
    inside += tag("text", { x: x0 - GAP, y: y + 4, "text-anchor": "end" }, escaped(yTexts[i]));
  });
  o.x.ticks.forEach((tick, i) => {
    const half = textWidth(xTexts[i]) / 2, middle = Math.min(px(tick), w - 2 - half);
    inside += tag("path", { class: "grid", d: `M${px(tick)} ${y0}V${y1}` });
    if (middle - half < end + GAP) return;
    end = middle + half;
    inside += tag("text", { x: middle, y: y0 + 20, "text-anchor": "middle" }, escaped(xTexts[i]));
  });
  inside += tag("path", { class: "axis", d: `M${x0} ${y1}V${y0}H${x1}` });
  const xMiddle = (x0 + x1) / 2, yMiddle = (y0 + y1) / 2;
  inside += tag("text", { class: "title", x: xMiddle, y: h - 6, "text-anchor": "middle" }, escaped(o.xTitle));
  const turned = { class: "title", "text-anchor": "middle", transform: `translate(13 ${yMiddle}) rotate(-90)` };
  inside += tag("text", turned, escaped(o.yTitle));
  const size = { viewBox: `0 0 ${w} ${h}`, style: `max-width:${w * 1.25}px` };
  return tag("svg", { ...size, role: "img", "aria-label": o.label }, inside + draw(px, py, { x0, x1, y0, y1 }));
};
const key = (entries) =>
  tag("div", { class: "legend" }, entries.map(([text, colour, kind]) => {
    const style = kind === "dot" ? `background:${colour}` : `border-color:${colour}`;
    return tag("span", {}, tag("i", { class: kind, style }) + escaped(text));
  }).join(""));
// Of a series: dashed where its line is.
const named = (name) => [name, colour(name), colours[name].round > 0 ? "dashed" : undefined];
const figure = (title, inside, switches = "") =>
  tag("figure", {}, (switches ? tag("div", { class: "bar" }, switches) : "") + tag("h3", {}, escaped(title)) + inside);
const note = (text) => tag("p", { class: "note" }, text);
const button = (name, value, text, pressed) =>
  tag("button", { type: "button", "data-name": name, "data-value": value, "aria-pressed": pressed }, escaped(text));

const state = { scale: "tail", metric: "load" };

const distribution = (title, what, curves) => {
  const all = curves.flatMap((curve) => curve.points.map((point) => point[0]));
  const x = log(Math.min(...all), Math.max(...all));
  const finest = Math.min(...curves.map((c) => c.points[0][1]), ...curves.map((c) => {
    const before = c.points[c.points.length - 2];
    return before ? 1 - before[1] : 1;
  }));
  // With few values there is no tail to spread.
  const spread = state.scale === "tail" && finest < 0.09;
  const y = spread ? tail(Math.max(finest, 1e-6) * 0.8) : linear(0, 1, 5);
  const draw = (px, py) => curves.map((curve) => {
    let [d, before] = ["", 0];
    for (const [us, share] of curve.points) {
      d += d ? `H${px(us)}V${py(share)}` : `M${px(us)} ${py(before)}V${py(share)}`;
      before = share;
    }
    const name = workloadName(curve.workload);
    return tag("path", { class: "line", stroke: colour(name), "stroke-dasharray": dashes(name), d });
  }).join("");
  const svg = frame({
    x, y, label: title, xTitle: what, yTitle: "share not slower",
    xText: time, yText: (share) => `${trimmed(share * 100, 6)} %`,
  }, draw);
  const legend = key(curves.map((c) => named(workloadName(c.workload))));
  const switches = finest < 0.09
    ? button("scale", "tail", "tail", spread) + button("scale", "linear", "linear", !spread) : "";
  return figure(title, legend + svg, switches);
};

const bySize = () => {
  const some = charts.sizes.filter((s) => s.bins.length > 1);
  const points = some.flatMap((s) => s.points);
  if (!points.length) return "";
  const range = (at) => log(Math.min(...points.map((p) => p[at])), Math.max(...points.map((p) => p[at]),
    ...(at === 1 ? some.flatMap((s) => s.bins.map((b) => b[3])) : [])));
  const draw = (px, py) => some.map((s) => {
    const dots = s.points.map(([size, us]) => `M${px(size)} ${py(us)}h0`).join("");
    const line = (at) => s.bins.map((b, i) => `${i ? "L" : "M"}${px(b[0])} ${py(b[at])}`).join("");
    const stroke = workloadColour(s.workload);
    return tag("path", { d: dots, stroke, "stroke-width": 3.2, "stroke-linecap": "round", opacity: 0.28 }) +
      tag("path", { class: "line", d: line(2), stroke }) +
      tag("path", { class: "line", d: line(3), stroke, "stroke-dasharray": "6 4" });
  }).join("");
  const svg = frame({
    x: range(0), y: range(1), label: "flow completion time by size", xTitle: "flow size", yTitle: "flow completion time",
    xText: bytes, yText: time,
  }, draw);
  const legend = key(some.flatMap((s) => [
    [`${workloadName(s.workload)}: median`, workloadColour(s.workload)],
    ["99th percentile", workloadColour(s.workload), "dashed"], ["flows", workloadColour(s.workload), "dot"],
  ]));
  return figure("Flow completion time by flow size", legend + svg);
};

const queueChart = (queue, most) => {
  const limit = queue.limit_packets !== null && queue.limit_packets <= most * 1.6 ? queue.limit_packets : 0;
  const high = Math.max(most, limit, queue.marking_packets || 0, 1) * 1.06;
  const draw = (px, py, box) => {
    const middle = (i) => (i + 0.5) * queue.stretch_us;
    const inside = queue.stretches.filter((_, i) => middle(i) <= charts.end_us);
    const up = inside.map((s, i) => `${i ? "L" : "M"}${px(middle(i))} ${py(s[2])}`).join("");
    const down = inside.map((s, i) => `L${px(middle(i))} ${py(s[0])}`).reverse().join("");
    const mean = inside.map((s, i) => `${i ? "L" : "M"}${px(middle(i))} ${py(s[1])}`).join("");
    let out = tag("path", { d: `${up}${down}Z`, fill: "var(--queue)", opacity: "var(--band)", style: "opacity:var(--band)" });
    out += tag("path", { class: "line", d: mean, stroke: "var(--queue)", style: "stroke-width:1.2" });
    const marks = [[limit, "buffer"], [queue.marking_packets, "marking"]].filter(([packets]) => packets);
    // Above their lines, if there is room for all.
    const places = separated(marks.map(([packets]) => py(packets) - 4), LINE, box.y1 + LINE - 3, box.y0 - 4);
    marks.forEach(([packets, text], i) => {
      out += tag("path", { class: "mark", d: `M${box.x0} ${py(packets)}H${box.x1}` });
      out += tag("text", { class: "halo", x: box.x1 - 3, y: places[i], "text-anchor": "end" }, `${text} ${packets}`);
    });
    return out;
  };
  const title = `${queue.switch} \u2192 ${queue.neighbour}`;
  return figure(title, frame({
    width: SMALL, height: 200, time: true, x: linear(0, charts.end_us, 5), y: linear(0, high, 4), label: `queue of ${title}`,
    xTitle: "time", yTitle: "packets", xText: time, yText: (n) => trimmed(n, 4),
  }, draw));
};

const QUANTITIES = {
  rate: ["throughput", (bits, digits) => (bits === 0 ? "0" : scaled(bits, RATE, digits))],
  packets: ["packets", (n) => trimmed(n, 4)],
  share: ["share of the rate", percent],
};
const seriesChart = (chart) => {
  const [title, text] = QUANTITIES[chart.quantity];
  const high = chart.lines.reduce((most, line) => line.points.reduce((n, point) => Math.max(n, point[1]), most), 0) || 1;
  const draw = (px, py) => chart.lines.map((line) => tag("path", {
    class: "line", stroke: colour(line.name), "stroke-dasharray": dashes(line.name), style: "stroke-width:1.2",
    d: line.points.map(([us, value], n) => `${n ? "L" : "M"}${px(us)} ${py(value)}`).join(""),
  })).join("");
  const left = chart.left_out ? note(`${count(chart.left_out)} more have no line.`) : "";
  return figure(chart.title, key(chart.lines.map((line) => named(line.name))) + frame({
    height: 240, time: true, x: linear(0, charts.end_us, 6), y: linear(0, high * 1.04, 4), label: `${chart.title} over time`,
    xTitle: "time", yTitle: title, xText: time, yText: text,
  }, draw) + left);
};

// Counts of each stretch, one workload on the other.
const eventChart = (chart) => {
  const stretches = Math.ceil(charts.end_us / charts.stretch_us);
  const at = (workload, i) => chart.workloads[workload][i] || 0;
  const sums = Array.from({ length: stretches }, (_, i) => {
    let sum = 0;
    return chart.workloads.map((_, workload) => (sum += at(workload, i)));
  });
  const high = sums.reduce((most, sum) => Math.max(most, sum[sum.length - 1]), 1);
  const draw = (px, py) => chart.workloads.map((_, workload) => {
    const bottom = (i) => (workload ? sums[i][workload - 1] : 0);
    const bars = sums.map((sum, i) => sum[workload] > bottom(i)
      ? `M${px(i * charts.stretch_us)} ${py(bottom(i))}V${py(sum[workload])}H${px(Math.min(charts.end_us, (i + 1) * charts.stretch_us))}V${py(bottom(i))}Z` : "").join("");
    return tag("path", { d: bars, fill: workloadColour(workload), stroke: workloadColour(workload), "stroke-width": 0.6 });
  }).join("");
  const used = chart.workloads.map((_, workload) => workload).filter((w) => chart.workloads[w].some((n) => n > 0));
  return figure(chart.kind[0].toUpperCase() + chart.kind.slice(1), key(used.map((w) => [workloadName(w), workloadColour(w)])) + frame({
    height: 240, time: true, x: linear(0, charts.end_us, 6), y: linear(0, high * 1.04, 4), label: `${chart.kind} over time`,
    xTitle: "time", yTitle: "packets", xText: time, yText: (n) => count(Math.round(n)),
  }, draw));
};

const METRICS = {
  load: ["load", (cell) => cell.load, percent],
  drops: ["drops", (cell) => cell.drops, count],
  detours: ["detours", (cell) => cell.detours, count],
  marks: ["marks", (cell) => cell.marks, count],
};
const sum = (metric) =>
  charts.links.reduce((all, g) => all + g.rows.reduce((n, r) => n + r.cells.reduce((m, c) => m + c[metric], 0), 0), 0);

const linkMap = () => {
  const [, value, text] = METRICS[state.metric];
  const cells = charts.links.flatMap((g) => g.rows.flatMap((r) => r.cells));
  const most = cells.reduce((n, cell) => Math.max(n, value(cell)), 0);
  // Where no link is busy, differences count: the scale ends at the busiest.
  const high = state.metric !== "load" ? Math.max(1, most) : most > 0.5 ? 1 : Math.max(most, 1e-9);
  const shade = (cell) => {
    // Counts differ by orders of magnitude: by their square root.
    const share = Math.min(1, value(cell) / high);
    const part = value(cell) === 0 ? 0 : state.metric === "load" ? share : 0.12 + 0.88 * Math.sqrt(share);
    return `color-mix(in oklab, var(--low), var(--high) ${(part * 100).toFixed(1)}%)`;
  };
  const maps = charts.links.map((group, g) => {
    const size = group.rows.length > 60 ? 11 : group.rows.length > 20 ? 14 : 22;
    const label = Math.max(...group.rows.map((row) => row.name.length)) * 7.1 + 8;
    const width = label + Math.max(...group.rows.map((row) => row.cells.length)) * size;
    const rows = group.rows.map((row, r) => {
      const name = tag("text", { x: label - 7, y: r * size + size / 2 + 4, "text-anchor": "end", style: size < 12 ? "font-size:9px" : "font-size:11px" }, escaped(row.name));
      return name + row.cells.map((cell, c) => tag("rect", {
        class: "cell", x: label + c * size, y: r * size, width: size, height: size, rx: 2,
        style: `fill:${shade(cell)}`, "data-at": `${g} ${r} ${c}`,
      })).join("");
    });
    const height = group.rows.length * size;
    const title = group.name === "hosts" ? "hosts, by their switch" : `${group.name}, by port`;
    return tag("div", {}, tag("h3", {}, escaped(title)) + tag("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, rows.join("")));
  });
  const buttons = Object.entries(METRICS).filter(([name]) => name === "load" || sum(name) > 0)
    .map(([name, [title]]) => button("metric", name, title, state.metric === name));
  const scale = tag("span", { class: "note", style: "margin:0" }, "0") + tag("span", { class: "scale" }) +
    tag("span", { class: "note", style: "margin:0" }, escaped(state.metric === "load" ? `${percent(high)} of the link` : `${text(high)} packets`));
  $("#links .bar").innerHTML = buttons.join("") + scale + tag("span", { id: "reading" }, "Each cell is a link in one direction; point at it to read it.");
  $("#links .map").innerHTML = maps.join("");
};

// ---- tables ----
const table = (head, rows) => {
  const cells = (kind, row) => tag("tr", {}, row.map((cell, i) =>
    Array.isArray(cell) ? tag(kind, { class: "in" }, escaped(cell[0])) : tag(kind, {}, escaped(cell))).join(""));
  return tag("table", {}, tag("thead", {}, cells("th", head)) + tag("tbody", {}, rows.map((row) => cells("td", row)).join("")));
};
const times = (of) => (of ? [of.p50_us, of.p95_us, of.p99_us, of.max_us].map((us) => even(us, TIME)) : ["-", "-", "-", "-"]);
const sizeName = (bin) => (bin.up_to_bytes === null ? `above ${bytes(bin.above_bytes)}` : `up to ${bytes(bin.up_to_bytes)}`);

const completionTables = () => {
  const flows = summary.workloads.flatMap((w) => [
    [w.name, count(w.flows), count(w.flows_done), rate(w.goodput_bits_per_second), ...times(w.fct)],
    ...(w.sizes.length > 1 ? w.sizes.map((bin) =>
      [[sizeName(bin)], count(bin.flows), count(bin.fct ? bin.fct.count : 0), "", ...times(bin.fct)]) : []),
  ]);
  const head = ["flows by workload", "flows", "done", "goodput", "FCT p50", "p95", "p99", "max"];
  const queries = summary.workloads.filter((w) => w.queries > 0)
    .map((w) => [w.name, count(w.queries), count(w.queries_done), ...times(w.qct)]);
  return table(head, flows) +
    (queries.length ? table(["queries by workload", "queries", "done", "QCT p50", "p95", "p99", "max"], queries) : "");
};
const queueTable = () => table(["queue, packets", "mean", "p50", "p95", "p99", "max"],
  [...summary.queues].sort((a, b) => b.mean_packets - a.mean_packets).slice(0, 12).map((q) =>
    [`${q.switch} \u2192 ${q.neighbour}`, q.mean_packets.toFixed(1), q.p50_packets, q.p95_packets, q.p99_packets, q.max_packets]));
const switchTable = () => {
  const rows = charts.links.filter((g) => g.name !== "hosts").flatMap((g) => g.rows).map((row) => {
    const of = (metric) => row.cells.reduce((n, cell) => n + cell[metric], 0);
    const load = Math.max(...row.cells.map((cell) => cell.load));
    return { name: row.name, load, drops: of("drops"), detours: of("detours"), marks: of("marks") };
  });
  const order = (a, b) => b.drops + b.detours - a.drops - a.detours || b.marks - a.marks || b.load - a.load;
  const shown = rows.sort(order).slice(0, 15);
  const title = rows.length > shown.length ? `switches, the ${shown.length} of ${rows.length} with most drops and detours` : "switches";
  return table([title, "drops", "detours", "marks", "busiest link"],
    shown.map((r) => [r.name, count(r.drops), count(r.detours), count(r.marks), percent(r.load)]));
};
const packetTable = () => table(
  ["packets by workload", "sent", "marked", "dropped", "detours", "detoured", "retransmitted", "timeouts"],
  summary.workloads.map((w) => [w.name, ...[w.packets_sent, w.packets_marked, w.packets_dropped, w.detours,
    w.packets_detoured, w.retransmissions, w.timeouts].map(count)]));

// ---- the page ----
const facts = () => {
  const p = summary.packets, fact = (value, name, warn) =>
    tag("div", { class: warn ? "fact warn" : "fact" }, tag("b", {}, escaped(value)) + tag("span", {}, escaped(name)));
  const open = summary.flows - summary.flows_done - summary.flows_endless;
  const all = [
    [time(summary.simulated_us), `simulated, seed ${summary.seed}`],
    [`${count(summary.hosts)} + ${count(summary.switches)}`, "hosts + switches"],
    [`${count(summary.flows_done)} of ${count(summary.flows)}`, summary.flows_endless ? `flows done, ${count(summary.flows_endless)} endless` : "flows done", open > 0],
    [rate(summary.goodput_bits_per_second), "goodput"],
    [count(p.dropped), `packets dropped of ${count(p.sent)}`, p.dropped > 0],
    [count(p.detoured), `packets detoured, ${count(p.detours)} detours`],
    [count(p.marked), "marks"],
    [`${count(p.retransmissions)} / ${count(p.timeouts)}`, "retransmissions / timeouts", p.timeouts > 0],
  ];
  if (summary.hottest_link) {
    const link = summary.hottest_link;
    all.push([percent(link.load_share), `hottest link: ${link.from} \u2192 ${link.to}`]);
  }
  return all.map((f) => fact(...f)).join("");
};
const draw = () => {
  const completion = [];
  if (charts.qct.length) completion.push(distribution("Query completion time", "query completion time", charts.qct));
  if (charts.fct.length) completion.push(distribution("Flow completion time", "flow completion time", charts.fct));
  completion.push(bySize());
  $("#completion .charts").innerHTML = completion.join("") || note("No flow is done.");
  $("#completion .tables").innerHTML = completionTables();
  linkMap();
};
const drawOnce = () => {
  const warm = charts.warm_up_us > 0
    ? `The first ${time(charts.warm_up_us)} are the warm-up: shaded in charts over time, and left out of completion times, slowdowns and what queues were like.` : "";
  $("#description").textContent = [summary.description, warm].filter(Boolean).join(" ");
  $("#facts").innerHTML = facts();
  const most = Math.max(0, ...charts.queues.map((q) => Math.max(...q.stretches.map((s) => s[2]))));
  if (charts.queues.length) {
    const left = charts.queues_left_out ? ` ${charts.queues_left_out} queues with shorter means have no chart.` : "";
    const lost = summary.queue_samples_lost ? ` ${count(summary.queue_samples_lost)} samples were not kept.` : "";
    $("#queues .note").textContent = `The band is from the least to the most in each ${time(charts.queues[0].stretch_us)}, the line the mean.${left}${lost}`;
    $("#queues .charts").innerHTML = charts.queues.map((q) => queueChart(q, most)).join("");
    $("#queues .tables").innerHTML = queueTable();
  } else {
    $("#queues .note").textContent = "No queue was written down: name some in [measure] of the scenario.";
  }
  $("#series .note").textContent = charts.series.length
    ? "" : "No flow and no link was written down over time: name some in [measure] of the scenario.";
  $("#series .charts").innerHTML = charts.series.map(seriesChart).join("");
  $("#events .note").textContent = charts.events.length
    ? `Packets in each ${time(charts.stretch_us)}, by workload.` : "No packet was dropped, detoured or marked.";
  $("#events .charts").innerHTML = charts.events.map(eventChart).join("");
  $("#links .tables").innerHTML = switchTable();
  $("#packets .tables").innerHTML = packetTable();
  const p = summary.packets;
  $("#packets .note").textContent = `Every packet is accounted for: ${count(p.sent)} sent = ${count(p.delivered)} delivered + ${count(p.dropped)} dropped + ` +
    `${count(p.in_network)} still in the network; ${count(p.hops)} hops, as many as their ways are long. ` +
    (p.dropped ? `Dropped: ${count(p.dropped_buffer_full)} for want of room, ${count(p.dropped_ttl_expired)} with their time to live over, ${count(p.dropped_no_route)} without a route` +
      (p.dropped_early ? `, ${count(p.dropped_early)} early by active queue management.` : ".") : "");
};
const theme = (name) => document.documentElement.setAttribute("data-theme", name);
theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
drawOnce();
draw();
document.addEventListener("click", (event) => {
  const pressed = event.target.closest("button");
  if (!pressed) return;
  if (pressed.id === "theme") theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  else if (pressed.dataset.name) {
    state[pressed.dataset.name] = pressed.dataset.value;
    draw();
  }
});
document.addEventListener("mouseover", (event) => {
  const at = event.target.dataset && event.target.dataset.at;
  if (!at) return;
  const [g, r, c] = at.split(" ").map(Number);
  const row = charts.links[g].rows[r], cell = row.cells[c];
  $("#reading").textContent = `${cell.from || row.name} \u2192 ${cell.to}: load ${percent(cell.load)}, ${count(cell.drops)} drops, ${count(cell.detours)} detours, ${count(cell.marks)} marks`;
});
