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
const FAR = 9;  /* what is rarer than 1 in a billion is drawn at the edge */
const odds = (v) => {
  const n = 10 ** Math.min(v, FAR);
  return n < 10 ? String(Number(n.toFixed(1))) : count(Math.floor(n * (1 + 1e-12)));
};
const chance = (v) => {
  if (v < 0.005) return "explains it";
  return `${v > FAR ? "fewer than" : "at most"} 1 in ${odds(v)} cases`;
};
const short = (v) => {
  if (v < 6) return odds(v);
  return v < FAR ? `${10 ** (v - 6)} million` : "1 billion";
};
const powers = (range) => {
  const out = [], step = Math.max(1, Math.ceil(range[1] / 4));
  for (let v = 0; v <= range[1]; v += step) out.push(v);
  return out;
};
const whole = (range) => ticks(range).filter(Number.isInteger);
const KINDS = {
  percent: { left: LEFT, scale: 100, cell: (v) => `${percent(v)}%`, ticks },
  chance: { left: 74, scale: 1, cell: chance, ticks: powers, label: short },
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
/* What is drawn of a line: of windows, estimates of enough rows, where there are any. */
const SURE = 30;
const drawnOf = (line) => {
  if (!line.windows || !line.rows.some((n) => n >= SURE)) return line;
  return { ...line, values: line.values.map((value, i) => (line.rows[i] >= SURE ? value : null)) };
};
/* A range holds all that is drawn, and room for the words at a limit. */
const rangeOf = (line, limits) => {
  const { values, low: lows = [], high: highs = [] } = drawnOf(line);
  const every = values.flatMap((value, i) => (value === null ? [] : [value, lows[i] ?? value, highs[i] ?? value])).concat(limits);
  if (!every.length) return [0, 1];
  const low = Math.min(...every), high = Math.max(...every), room = Math.max(0.1 * (high - low), 0.002);
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
/* Words stand above or below their line, where they lie on no other line and no other words. */
const placed = (line, sides, taken) => {
  const spots = sides.map((side) => line + side).filter((at) => at >= TOP + 9 && at <= BOTTOM - 3);
  const isFree = (at) => taken.every(([top, bottom]) => bottom < at - 10 || top > at + 3);
  return spots.find(isFree) ?? spots[0] ?? clamp(line + sides[0], [TOP + 9, BOTTOM - 3]);
};
const drawLimits = (svg, limits, y, left, lines) => {
  const taken = lines.concat(limits.map(([value]) => y(value))).map((at) => [at, at]);
  if (limits.length > 1) {
    const [low, high] = limits.map(([value]) => y(value));
    draw(svg, "path", { class: "zone", d: `M${left} ${low}H${RIGHT}V${high}H${left}Z` });
  }
  limits.forEach(([value, text], k) => {
    const at = placed(y(value), limits.length === 2 && k === 0 ? [14, -5, 27] : [-5, 14, -18], taken);
    taken.push([at - 10, at + 3]);
    draw(svg, "path", { class: "limit", d: `M${left} ${y(value)}H${RIGHT}` });
    draw(svg, "text", { class: "limit", x: left + 3, y: at }, text);
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
  const ticksY = kind.ticks(range);
  const drawn = axes(id, [span[0] - edge, span[1] + edge], range, ["time (UTC)", chart.axis],
    { left: kind.left, label: kind.label, ticksX: [], ticksY });
  const x = (i) => drawn.sx(chart.times[i]);
  const y = (v) => drawn.sy(clamp(v, chart.range) * kind.scale);
  drawTimes(drawn, span, chart.least ?? 0);
  if (chart.bars) drawBars(drawn.svg, chart, x, y, Math.max(1, 0.8 * (drawn.sx(MINUTE) - drawn.sx(0))));
  else for (const line of chart.lines) drawLine(drawn.svg, drawnOf(line), x, y);
  drawLimits(drawn.svg, chart.limits, y, kind.left, ticksY.map(drawn.sy));
  drawAlarms(drawn, chart.alarms, span, kind.left);
  Object.assign(own, { said, chart, x, mark: draw(drawn.svg, "path", { class: "mark" }) });
  point(own);
  tabulate(own);
};
const drop = (id) => {
  figures.get(id)?.node.remove();
  figures.delete(id);
};
return { figure, plot, drop, figures, rangeOf, odds, FAR };
})();
