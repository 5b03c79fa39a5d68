/* Charts over time, which are drawn anew as the numbers come. */
const plots = (() => {
"use strict";
const { byId, draw, ticks, axes, fill, percent, count, LEFT, RIGHT, TOP, BOTTOM } = charts;
const { make, visible, when } = service;
const UNIT = 360;  /* the width of a chart in its own units */
const MINUTE = 60000, DAY = 1440 * MINUTE;
const STEPS = [1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]
  .map((seconds) => seconds * 1000);
const clamp = (v, range) => Math.min(Math.max(v, range[0]), range[1]);

/* Chances: 1 in N, where the chart has the logarithm of N. */
const odds = (v) => {
  const n = 10 ** Math.min(v, 9);
  return n < 10 ? String(Number(n.toFixed(1))) : count(Math.floor(n * (1 + 1e-12)));
};
const chance = (v) => {
  if (v < 0.005) return "explains it";
  return `${v > 9 ? "fewer than" : "at most"} 1 in ${odds(v)} cases`;
};
const powers = (range) => {
  const out = [], step = Math.max(1, Math.ceil(range[1] / 5));
  for (let v = 0; v <= range[1]; v += step) out.push(v);
  return out;
};
const whole = (range) => ticks(range).filter(Number.isInteger);
const KINDS = {
  percent: { left: LEFT, scale: 100, cell: (v) => `${percent(v)}%`, ticks },
  chance: { left: 74, scale: 1, cell: chance, ticks: powers, label: odds },
  rows: { left: 74, scale: 1, cell: count, ticks: whole, label: count },
};

/* A figure is made once; what it shows comes later. */
const figures = new Map();
const figure = (parent, id, title, heads, extra = []) => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ id, role: "img", "aria-label": `${title}, over time`,
    viewBox: "0 0 360 250" })) svg.setAttribute(key, value);
  const body = make("tbody"), details = make("details");
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  details.append(make("summary", {}, "Table"),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title} as a table` },
      make("table", { id: `t-${id}` }, make("thead", {}, head), body)));
  const node = make("figure", {}, make("figcaption", {}, title), svg, ...extra,
    make("p", { class: "small readout", id: `at-${id}` }), details);
  parent.append(node);
  const own = { id, svg, node, details, at: null };
  figures.set(id, own);
  details.addEventListener("toggle", () => tabulate(own));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    own.at = (event.clientX - box.left) / box.width * UNIT;
    point(own);
  });
  svg.addEventListener("pointerleave", () => { own.at = null; point(own); });
  return node;
};

/* What lies under the pointer is said below the chart; otherwise what came last. */
const words = (chart, line, i) => {
  if (line.values[i] === null) return "-";
  const { cell } = KINDS[chart.unit];
  const ends = line.low ? ` [${cell(line.low[i])}, ${cell(line.high[i])}]` : "";
  return `${cell(line.values[i])}${ends}${line.rows ? ` of ${service.many(line.rows[i], "row")}` : ""}`;
};
const cells = (chart, i) =>
  [when(chart.times[i]), ...chart.lines.map((line) => words(chart, line, i))].map(visible);
const point = (own) => {
  const { chart, x, mark } = own;
  let best = chart.times.length - 1;
  if (own.at !== null) {
    chart.times.forEach((_, i) => { if (Math.abs(x(i) - own.at) < Math.abs(x(best) - own.at)) best = i; });
    mark.setAttribute("d", `M${x(best)} ${TOP}V${BOTTOM}`);
  } else mark.removeAttribute("d");
  const [at, ...rest] = cells(chart, best);
  service.put(`at-${own.id}`, `${at} UTC: ${chart.lines.map((line, k) => `${line.name} ${rest[k]}`).join("; ")}`);
};
const tabulate = ({ id, chart, details }) => {
  if (details.open) fill(`t-${id}`, chart.times.map((_, i) => cells(chart, chart.times.length - 1 - i)));
};

/* Axes. */
const spanOf = (times) => {
  const first = times[0], last = times[times.length - 1];
  const short = Math.max(0, MINUTE - (last - first)) / 2;
  return [first - short, last + short];
};
const drawTimes = (plot, span, least) => {
  const long = span[1] - span[0];
  const fits = (step) => step >= least && long / step <= (step < MINUTE ? 3 : 4.5);  /* seconds take room */
  const step = STEPS.find(fits) ?? DAY * Math.ceil(long / DAY / 4);
  for (let at = Math.ceil(span[0] / step) * step; at <= span[1]; at += step) {
    const x = plot.sx(at), text = new Date(at).toISOString();
    draw(plot.svg, "path", { class: "grid", d: `M${x} ${TOP}V${BOTTOM}` });
    draw(plot.svg, "text", { x: Math.min(x, UNIT - (step < MINUTE ? 25 : 17)), y: BOTTOM + 14, "text-anchor": "middle" },
      at % DAY === 0 ? text.slice(5, 10) : text.slice(11, step < MINUTE ? 19 : 16));
  }
};
/* The range of what is known well: limits, rates of enough rows, intervals at the ends of windows. */
const SURE = 30;
const rangeOf = (line, limits) => {
  const known = [], last = new Map();
  for (const least of [SURE, 0]) {
    line.values.forEach((value, i) => {
      if (value === null || (line.rows && line.rows[i] < least)) return;
      known.push(value);
      last.set(line.windows ? line.windows[i] : i, i);
    });
    if (known.length) break;
  }
  if (line.low) for (const i of last.values()) known.push(line.low[i], line.high[i]);
  const every = known.concat(limits);
  if (!every.length) return [0, 1];
  const low = Math.min(...every), high = Math.max(...every), room = Math.max(0.08 * (high - low), 0.002);
  return [Math.max(0, low - room), Math.min(1, high + room)];
};

/* Points of a line that belong together: a window, or all without a gap. */
const segments = (line) => {
  const out = [];
  let last = null;
  line.values.forEach((value, i) => {
    if (value === null) {
      if (!line.windows) last = null;
      return;
    }
    const window = line.windows ? line.windows[i] : 0;
    if (window !== last) out.push([]);
    last = window;
    out[out.length - 1].push(i);
  });
  return out;
};
const drawLine = (svg, line, x, y) => {
  const at = (ends) => (i) => `${x(i).toFixed(1)} ${y(ends[i]).toFixed(1)}`;
  for (const own of segments(line)) {
    const end = own[own.length - 1];
    if (line.low && own.length > 1) {
      const edge = own.map(at(line.high)).concat(own.slice().reverse().map(at(line.low)));
      draw(svg, "path", { class: "band", d: `M${edge.join("L")}Z` });
    } else if (line.low) {
      draw(svg, "path", { class: "whisker lone", d: `M${at(line.low)(end)}L${at(line.high)(end)}` });
    }
    draw(svg, "path", { class: "curve", d: `M${own.map(at(line.values)).join("L")}` });
    draw(svg, "circle", { class: "end", r: 2, cx: x(end).toFixed(1), cy: y(line.values[end]).toFixed(1) });
  }
};
const drawLimits = (svg, limits, y, left) => {
  if (limits.length > 1) {
    const [low, high] = limits.map(([value]) => y(value));
    draw(svg, "path", { class: "zone", d: `M${left} ${low}H${RIGHT}V${high}H${left}Z` });
  }
  limits.forEach(([value, text], k) => {
    const below = limits.length === 2 && k === 0;
    draw(svg, "path", { class: "limit", d: `M${left} ${y(value)}H${RIGHT}` });
    draw(svg, "text", { class: "limit", x: left + 3, y: clamp(y(value) + (below ? 12 : -4), [TOP + 9, BOTTOM - 3]) }, text);
  });
};
const drawAlarms = (plot, alarms, span, left) => {
  for (const time of alarms.filter((own) => own >= span[0] && own <= span[1])) {
    const at = plot.sx(time), right = at > (left + RIGHT) / 2;
    draw(plot.svg, "path", { class: "alarm", d: `M${at} ${TOP}V${BOTTOM}` });
    draw(plot.svg, "text", { class: "alarm", x: at + (right ? -4 : 4), y: BOTTOM - 5,
      "text-anchor": right ? "end" : "start" }, "alarm");
  }
};
/* Bars: how many, and below, filled, how many of them. */
const drawBars = (svg, chart, x, y, width) => {
  const [every, part] = chart.lines.map((line) => line.values);
  const bar = (i, from, to) => `M${(x(i) - width / 2).toFixed(1)} ${y(from).toFixed(1)}h${width.toFixed(1)}V${y(to).toFixed(1)}h${(-width).toFixed(1)}Z`;
  const path = (from, to) => every.map((value, i) => (value ? bar(i, from(i), to(i)) : "")).join("");
  draw(svg, "path", { class: "right", d: path(() => 0, (i) => part[i]) });
  draw(svg, "path", { class: "rest", d: path((i) => part[i], (i) => every[i]) });
};

/* A chart: unit, axis, times (milliseconds), the least step between them, lines, limits, alarms, range; bars where wanted. */
const plot = (id, chart) => {
  const own = figures.get(id), said = JSON.stringify(chart);
  if (own.said === said) return;
  const kind = KINDS[chart.unit], range = chart.range.map((v) => v * kind.scale);
  const span = spanOf(chart.times);
  const edge = chart.bars ? MINUTE / 2 : 0;
  const drawn = axes(id, [span[0] - edge, span[1] + edge], range, ["time (UTC)", chart.axis],
    { left: kind.left, label: kind.label, ticksX: [], ticksY: kind.ticks(range) });
  const x = (i) => drawn.sx(chart.times[i]);
  const y = (v) => drawn.sy(clamp(v, chart.range) * kind.scale);
  drawTimes(drawn, span, chart.least ?? 0);
  if (chart.bars) drawBars(drawn.svg, chart, x, y, Math.max(1, 0.8 * (drawn.sx(MINUTE) - drawn.sx(0))));
  else for (const line of chart.lines) drawLine(drawn.svg, line, x, y);
  drawLimits(drawn.svg, chart.limits, y, kind.left);
  drawAlarms(drawn, chart.alarms, span, kind.left);
  Object.assign(own, { said, chart, x, mark: draw(drawn.svg, "path", { class: "mark" }) });
  point(own);
  tabulate(own);
};
const drop = (id) => {
  figures.get(id)?.node.remove();
  figures.delete(id);
};
return { figure, plot, drop, figures, rangeOf, odds };
})();
