(() => {
"use strict";
const { byId, data, percent, count, draw, ticks, axes, fill, LEFT, RIGHT, TOP, BOTTOM } = charts;
const UNIT = 360;  /* the width of a chart in its own units */

const time = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
const clamp = (v, range) => Math.min(Math.max(v, range[0]), range[1]);

/* Chances: 1 in N, where the chart has the logarithm of N. */
const odds = (v) => {
  const n = 10 ** Math.min(v, 9);
  return n < 10 ? String(Number(n.toFixed(1))) : count(Math.floor(n * (1 + 1e-12)));
};
const chance = (v) => {
  if (v < 0.005) return "explains it";
  const said = `1 in ${odds(v)} cases`;
  return v > 9 ? `fewer than ${said}` : `at most ${said}`;
};
const powers = (range) => {
  const out = [], step = Math.max(1, Math.ceil(range[1] / 5));
  for (let v = 0; v <= range[1]; v += step) out.push(v);
  return out;
};
const KINDS = {
  percent: { left: LEFT, scale: 100, cell: (v) => `${percent(v)}%`, ticks, label: undefined },
  chance: { left: 74, scale: 1, cell: chance, ticks: powers, label: odds },
};

/* Points of a line that belong together: a window, or all. */
const segments = (line) => {
  const out = [];
  let last;
  line.values.forEach((value, i) => {
    if (value === null) return;
    const window = line.windows.length ? line.windows[i] : 0;
    if (window !== last) out.push([]);
    last = window;
    out[out.length - 1].push(i);
  });
  return out;
};

const words = (chart, line, i) => {
  if (line.values[i] === null) return "-";
  const { cell } = KINDS[chart.unit];
  const ends = line.low.length ? ` [${cell(line.low[i])}, ${cell(line.high[i])}]` : "";
  const rows = line.rows.length ? ` of ${count(line.rows[i])} row${line.rows[i] === 1 ? "" : "s"}` : "";
  return `${cell(line.values[i])}${ends}${rows}`;
};
const cells = (chart, i) =>
  [count(chart.x[i]), time(chart.times[i]), ...chart.lines.map((line) => words(chart, line, i))];

const drawZone = (chart, plot, y, left) => {
  if (chart.limits.length < 2) return;
  const [low, high] = chart.limits.map(([value]) => y(value));
  draw(plot.svg, "path", { class: "zone", d: `M${left} ${low}H${RIGHT}V${high}H${left}Z` });
};
const drawLimits = (chart, plot, y, left) => chart.limits.forEach(([value, text], k) => {
  const below = chart.limits.length === 2 && k === 0;
  draw(plot.svg, "path", { class: "limit", d: `M${left} ${y(value)}H${RIGHT}` });
  const at = clamp(y(value) + (below ? 12 : -4), [TOP + 9, BOTTOM - 3]);
  draw(plot.svg, "text", { class: "limit", x: left + 3, y: at }, text);
});

const drawLine = (chart, line, plot, x, y, shift, kind) => {
  const at = (i) => `${(x(i) + shift).toFixed(1)} ${y(line.values[i]).toFixed(1)}`;
  const whisker = (i) => draw(plot.svg, "path", { class: `whisker ${kind || "lone"}`,
    d: `M${(x(i) + shift).toFixed(1)} ${y(line.low[i]).toFixed(1)}V${y(line.high[i]).toFixed(1)}` });
  const band = line.low.length && !line.key;
  for (const own of segments(line)) {
    const end = own[own.length - 1];
    if (band && own.length > 1) {
      const edge = (ends, i) => `${x(i).toFixed(1)} ${y(ends[i]).toFixed(1)}`;
      const d = own.map((i) => edge(line.high, i)).concat(own.slice().reverse().map((i) => edge(line.low, i)));
      draw(plot.svg, "path", { class: "band", d: `M${d.join("L")}Z` });
    } else if (line.low.length) whisker(end);
    draw(plot.svg, "path", { class: `curve ${kind}`, d: `M${own.map(at).join("L")}` });
    const [cx, cy] = at(end).split(" ");
    draw(plot.svg, "circle", { class: `end ${kind}`, r: 2, cx, cy });
  }
};

const drawDots = (line, plot, x, y) => line.values.forEach((value, i) => {
  if (value !== null) draw(plot.svg, "circle", { class: "point", r: 1.5, cx: x(i).toFixed(1), cy: y(value).toFixed(1) });
});

/* Letters at the ends of lines, no two on top of each other. */
const drawKeys = (plot, x, y, lines) => {
  const ends = [];
  lines.forEach((line, k) => {
    const last = line.values.findLastIndex((value) => value !== null);
    if (line.key && last >= 0) ends.push({ key: line.key, k, at: x(last) + 4, y: y(line.values[last]) + 4 });
  });
  ends.sort((a, b) => a.y - b.y);
  for (let i = 1; i < ends.length; i += 1) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + 11);
  for (let i = ends.length - 1; i >= 0; i -= 1) {
    ends[i].y = Math.min(ends[i].y, i + 1 < ends.length ? ends[i + 1].y - 11 : BOTTOM);
    draw(plot.svg, "text", { class: `name s${ends[i].k + 1}`, x: ends[i].at, y: ends[i].y }, ends[i].key);
  }
};

/* What lies under the pointer is said below the chart. */
const follow = (chart, plot, x) => {
  const said = byId(`at-${chart.id}`);
  const line = draw(plot.svg, "path", { class: "mark" });
  const show = (i) => {
    const [update, when, ...rest] = cells(chart, i);
    const parts = chart.lines.map((own, k) => `${own.key || own.name}: ${rest[k]}`);
    said.textContent = `Update ${update}, ${when} UTC: ${parts.join("; ")}`;
  };
  plot.svg.addEventListener("pointermove", (event) => {
    const box = plot.svg.getBoundingClientRect();
    const here = (event.clientX - box.left) / box.width * UNIT;
    let best = 0;
    chart.x.forEach((_, i) => { if (Math.abs(x(i) - here) < Math.abs(x(best) - here)) best = i; });
    line.setAttribute("d", `M${x(best)} ${TOP}V${BOTTOM}`);
    show(best);
  });
  plot.svg.addEventListener("pointerleave", () => { line.removeAttribute("d"); show(chart.x.length - 1); });
  show(chart.x.length - 1);
};

const drawChart = (chart) => {
  const kind = KINDS[chart.unit];
  const rangeX = [0.5, chart.updates + 0.5];
  const rangeY = chart.range.map((v) => v * kind.scale);
  const plot = axes(chart.id, rangeX, rangeY, ["update", chart.axis], { left: kind.left, label: kind.label,
    ticksX: ticks(rangeX).filter(Number.isInteger), ticksY: kind.ticks(rangeY) });
  const x = (i) => plot.sx(chart.x[i]);
  const y = (v) => plot.sy(clamp(v, chart.range) * kind.scale);
  drawZone(chart, plot, y, kind.left);
  for (const line of chart.lines.filter((own) => own.dots)) drawDots(line, plot, x, y);
  const joined = chart.lines.filter((own) => !own.dots);
  joined.forEach((line, k) => {
    const name = line.key ? `s${k + 1}` : "";
    drawLine(chart, line, plot, x, y, line.low.length && line.key ? 2 * k : 0, name);
  });
  drawLimits(chart, plot, y, kind.left);
  drawKeys(plot, x, y, joined);
  for (const update of chart.alarms) {
    const at = plot.sx(update), right = at > (kind.left + RIGHT) / 2;
    draw(plot.svg, "path", { class: "alarm", d: `M${at} ${TOP}V${BOTTOM}` });
    draw(plot.svg, "text", { class: "alarm", x: at + (right ? -4 : 4), y: BOTTOM - 5,
      "text-anchor": right ? "end" : "start" }, "alarm");
  }
  follow(chart, plot, x);
  fill(`t-${chart.id}`, chart.x.map((_, i) => cells(chart, chart.x.length - 1 - i)));
};
data.charts.forEach(drawChart);
})();
