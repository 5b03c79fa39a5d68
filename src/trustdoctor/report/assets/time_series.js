/* Charts of rates and of evidence, over updates or over time; they can be drawn anew as numbers come. */
const timeSeries = (() => {
"use strict";
const { byId, visible, make, put, percent, plainPercent, count, counted, minute } = dom;
const { draw, ticks, axes, pointer, LEFT, RIGHT, TOP, BOTTOM } = charts;
const MINUTE = 60000, DAY = 1440 * MINUTE;
const STEPS = [1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400]
  .map((seconds) => seconds * 1000);
const clamp = (v, range) => Math.min(Math.max(v, range[0]), range[1]);

/* A chart is { unit, axis, times, lines, limits, range } and may have
   updates, total: the numbers of updates, which are then on the axis, and how many there are;
   alarms: update numbers or times; bars: whether the second line is a part of the first;
   least: the least step of the axis of time.
   Times are in milliseconds, limits are [value, words].
   A line is { name, values } and may have low, high, rows, windows (of each value), key (a letter
   beside it) and dots (its points are not joined). A value is null where there is none. */

/* Chances: 1 in N, where the chart has the logarithm of N. */
const RAREST = 9;  /* what is rarer than 1 in a billion is drawn at the edge */
const odds = (v) => {
  const n = 10 ** Math.min(v, RAREST);
  return n < 10 ? String(Number(n.toFixed(1))) : count(Math.floor(n * (1 + 1e-12)));
};
const chance = (v) => {
  if (v < 0.005) return "explains it";
  return `${v > RAREST ? "fewer than" : "at most"} 1 in ${odds(v)} cases`;
};
const shortOdds = (v) => {
  if (v < 6) return odds(v);
  return v < RAREST ? `${10 ** (v - 6)} million` : "1 billion";
};
const powers = (range) => {
  const values = [], step = Math.max(1, Math.ceil(range[1] / 4));
  for (let v = 0; v <= range[1]; v += step) values.push(v);
  return values;
};
const whole = (range) => ticks(range).filter(Number.isInteger);
const UNITS = {
  percent: { left: LEFT, scale: 100, words: (v) => `${percent(v)}%`, ticks },
  chance: { left: 74, scale: 1, words: chance, ticks: powers, label: shortOdds },
  rows: { left: 74, scale: 1, words: count, ticks: whole, label: count },
};

/* Evidence: natural logarithms, and the limit at which they alarm. */
const evidenceOf = (logs, limit) => {
  const values = logs.map((log) => (log === null ? null : Math.max(0, log / Math.LN10)));
  const alarm = limit / Math.LN10, reach = Math.max(1.3 * alarm, 1.05 * Math.max(...values));
  return { unit: "chance", axis: "1 in N cases", lines: [{ name: "chance", values }],
    limits: [[alarm, `alarm at 1 in ${odds(alarm)}`]], range: [0, Math.min(reach, Math.max(RAREST, 1.3 * alarm))] };
};
/* Rates between two limits, of which 0 and 1 say nothing. */
const limitsOf = ({ low, high }) => [[low, "at least", 0], [high, "at most", 1]]
  .flatMap(([limit, words, none]) => (limit === none ? [] : [[limit, `${words} ${plainPercent(limit)}`]]));
const ratesOf = (lines, test) => {
  const limits = test ? limitsOf(test) : [];
  return { unit: "percent", axis: "%", lines, limits, range: rangeOf(lines, limits) };
};

/* Estimates of few rows say little: they are in the table alone, unless there are no others. */
const ENOUGH = 30;
const drawnOf = (line) => {
  if (!line.windows || !line.rows.some((n) => n >= ENOUGH)) return line;
  return { ...line, values: line.values.map((value, i) => (line.rows[i] >= ENOUGH ? value : null)) };
};
/* Points of a line that belong together: a window, or all without a gap. */
const segments = (line) => {
  const found = [];
  let last = null;
  line.values.forEach((value, i) => {
    if (value === null) {
      if (!line.windows) last = null;
      return;
    }
    const window = line.windows ? line.windows[i] : 0;
    if (window !== last) found.push([]);
    last = window;
    found[found.length - 1].push(i);
  });
  return found;
};
/* Intervals that are drawn: of every point as a band, or at the end of each window. */
const intervalsOf = (line) => {
  if (!line.low) return [];
  return segments(line).flatMap((segment) => (line.key ? segment.slice(-1) : segment));
};
/* A range holds all that is drawn, and room for the words at a limit. */
const rangeOf = (lines, limits) => {
  const values = lines.map(drawnOf).flatMap((line) =>
    [...line.values, ...intervalsOf(line).flatMap((i) => [line.low[i], line.high[i]])]);
  const every = values.filter((value) => value !== null).concat(limits.map(([value]) => value));
  if (!every.length) return [0, 1];
  const low = Math.min(...every), high = Math.max(...every), room = Math.max(0.1 * (high - low), 0.002);
  return [Math.max(0, low - room), Math.min(1, high + room)];
};

/* The horizontal axis: updates by their numbers, or time. */
const updateAxis = ({ updates, total }) => {
  const range = [0.5, total + 0.5];
  return { title: "update", range, places: updates, ticks: whole(range) };
};
const timeAxis = ({ times, bars, least = 0 }) => {
  const first = times[0], last = times[times.length - 1], length = Math.max(MINUTE, last - first);
  const room = (length - (last - first) + (bars ? MINUTE : 0)) / 2;
  const fits = (step) => step >= least && length / step <= (step < MINUTE ? 3 : 4.5);  /* seconds take room */
  const step = STEPS.find(fits) ?? DAY * Math.ceil(length / DAY / 4);
  const range = [first - room, last + room], marks = [];
  for (let at = Math.ceil(range[0] / step) * step; at <= range[1]; at += step) marks.push(at);
  const label = (at) => {
    const text = new Date(at).toISOString();
    return at % DAY === 0 ? text.slice(5, 10) : text.slice(11, step < MINUTE ? 19 : 16);
  };
  return { title: "time (UTC)", range, places: times, ticks: marks, label };
};

const drawDots = (svg, line, x, y) => line.values.forEach((value, i) => {
  if (value !== null) draw(svg, "circle", { class: "point", r: 1.5, cx: x(i).toFixed(1), cy: y(value).toFixed(1) });
});
/* Lines with a letter have whiskers, side by side; another has a band. */
const drawLine = (svg, line, x, y, kind, shift) => {
  const place = (values) => (i) => `${(x(i) + shift).toFixed(1)} ${y(values[i]).toFixed(1)}`;
  const whisker = (i) => draw(svg, "path", { class: `whisker ${kind || "lone"}`, d: `M${place(line.low)(i)}L${place(line.high)(i)}` });
  for (const segment of segments(line)) {
    const end = segment[segment.length - 1];
    if (line.low && !line.key && segment.length > 1) {
      const edge = segment.map(place(line.high)).concat(segment.slice().reverse().map(place(line.low)));
      draw(svg, "path", { class: "band", d: `M${edge.join("L")}Z` });
    } else if (line.low) whisker(end);
    draw(svg, "path", { class: `curve ${kind}`, d: `M${segment.map(place(line.values)).join("L")}` });
    const [cx, cy] = place(line.values)(end).split(" ");
    draw(svg, "circle", { class: `end ${kind}`, r: 2, cx, cy });
  }
};
/* Letters at the ends of lines, no two on top of each other. */
const drawKeys = (svg, lines, x, y) => {
  const ends = [];
  lines.forEach((line, k) => {
    const last = line.values.findLastIndex((value) => value !== null);
    if (line.key && last >= 0) ends.push({ key: line.key, k, x: x(last) + 4, y: y(line.values[last]) + 4 });
  });
  ends.sort((a, b) => a.y - b.y);
  for (let i = 1; i < ends.length; i += 1) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + 11);
  for (let i = ends.length - 1; i >= 0; i -= 1) {
    ends[i].y = Math.min(ends[i].y, i + 1 < ends.length ? ends[i + 1].y - 11 : BOTTOM);
    draw(svg, "text", { class: `name s${ends[i].k + 1}`, x: ends[i].x, y: ends[i].y }, ends[i].key);
  }
};
/* Bars: of the first line, and below, filled, the part that is the second. */
const drawBars = (svg, [all, part], x, y, width) => {
  const bar = (i, from, to) => `M${(x(i) - width / 2).toFixed(1)} ${y(from).toFixed(1)}h${width.toFixed(1)}V${y(to).toFixed(1)}h${(-width).toFixed(1)}Z`;
  const outline = (from, to) => all.values.map((value, i) => (value ? bar(i, from(i), to(i)) : "")).join("");
  draw(svg, "path", { class: "right", d: outline(() => 0, (i) => part.values[i]) });
  draw(svg, "path", { class: "rest", d: outline((i) => part.values[i], (i) => all.values[i]) });
};
/* Words stand above or below their line, where they lie on no other line and no other words. */
const placeWords = (line, sides, taken) => {
  const places = sides.map((side) => line + side).filter((at) => at >= TOP + 9 && at <= BOTTOM - 3);
  const isFree = (at) => taken.every(([top, bottom]) => bottom < at - 10 || top > at + 3);
  return places.find(isFree) ?? places[0] ?? clamp(line + sides[0], [TOP + 9, BOTTOM - 3]);
};
const drawLimits = (svg, limits, y, left, gridLines) => {
  const taken = gridLines.concat(limits.map(([value]) => y(value))).map((at) => [at, at]);
  if (limits.length > 1) {
    const [low, high] = limits.map(([value]) => y(value));
    draw(svg, "path", { class: "zone", d: `M${left} ${low}H${RIGHT}V${high}H${left}Z` });
  }
  limits.forEach(([value, words], k) => {
    const at = placeWords(y(value), limits.length === 2 && k === 0 ? [14, -5, 27] : [-5, 14, -18], taken);
    taken.push([at - 10, at + 3]);
    draw(svg, "path", { class: "limit", d: `M${left} ${y(value)}H${RIGHT}` });
    draw(svg, "text", { class: "limit", x: left + 3, y: at }, words);
  });
};
const drawAlarms = (plot, alarms, range, left) => {
  for (const place of alarms.filter((alarm) => alarm >= range[0] && alarm <= range[1])) {
    const at = plot.sx(place), isRight = at > (left + RIGHT) / 2;
    draw(plot.svg, "path", { class: "alarm", d: `M${at} ${TOP}V${BOTTOM}` });
    draw(plot.svg, "text", { class: "alarm", x: at + (isRight ? -4 : 4), y: BOTTOM - 5,
      "text-anchor": isRight ? "end" : "start" }, "alarm");
  }
};

/* The words of one place: in the table, and below the chart. */
const wordsOf = (chart, line, i) => {
  if (line.values[i] === null) return "-";
  const { words } = UNITS[chart.unit];
  const interval = line.low ? ` [${words(line.low[i])}, ${words(line.high[i])}]` : "";
  return `${words(line.values[i])}${interval}${line.rows ? ` of ${counted(line.rows[i], "row")}` : ""}`;
};
const cellsOf = (chart, i) => {
  const cells = [minute(chart.times[i]), ...chart.lines.map((line) => wordsOf(chart, line, i))].map(visible);
  return chart.updates ? [count(chart.updates[i]), ...cells] : cells;
};
const readOut = (chart, i) => {
  const words = chart.lines.map((line) => `${line.key || line.name}: ${wordsOf(chart, line, i)}`);
  const update = chart.updates ? `Update ${count(chart.updates[i])}, ` : "";
  return `${update}${minute(chart.times[i])} UTC: ${words.join("; ")}`;
};

/* Figures: what is below the chart is about the place under the pointer, or else the last. */
const figures = new Map();
const point = ({ id, chart, x, mark, here }) => {
  let nearest = chart.times.length - 1;
  if (here !== null) {
    chart.times.forEach((_, i) => { if (Math.abs(x(i) - here) < Math.abs(x(nearest) - here)) nearest = i; });
    mark.setAttribute("d", `M${x(nearest)} ${TOP}V${BOTTOM}`);
  } else mark.removeAttribute("d");
  put(`at-${id}`, readOut(chart, nearest));
};
const tabulate = ({ id, chart }) =>
  tables.fill(`t-${id}`, chart.times.map((_, i) => cellsOf(chart, chart.times.length - 1 - i)));
/* Takes a figure that is in the page. */
const attach = (id) => {
  const svg = byId(id), node = svg.closest("figure"), details = node.querySelector("details");
  const figure = { id, node, details, here: null };
  figures.set(id, figure);
  details.addEventListener("toggle", () => { if (details.open) tabulate(figure); });
  svg.addEventListener("pointermove", (event) => {
    [figure.here] = pointer(svg, event);
    point(figure);
  });
  svg.addEventListener("pointerleave", () => { figure.here = null; point(figure); });
};
/* Makes a figure; the same as figure.html does. */
const add = (parent, id, title, heads, extra = []) => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ id, role: "img", "aria-label": `${title}, over time`,
    viewBox: "0 0 360 250" })) svg.setAttribute(name, value);
  const head = make("tr", {}, ...heads.map((text) => make("th", { scope: "col" }, text)));
  const table = make("table", { id: `t-${id}`, class: "fold" }, make("thead", {}, head), make("tbody"));
  const region = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title} as a table` }, table);
  parent.append(make("figure", {}, make("figcaption", {}, title), svg, ...extra,
    make("p", { class: "small readout", id: `at-${id}` }), make("details", {}, make("summary", {}, "Table"), region)));
  attach(id);
};
const remove = (id) => {
  figures.get(id)?.node.remove();
  figures.delete(id);
};

const plot = (id, chart) => {
  const figure = figures.get(id), drawn = JSON.stringify(chart);
  if (figure.drawn === drawn) return;
  const unit = UNITS[chart.unit], horizontal = chart.updates ? updateAxis(chart) : timeAxis(chart);
  const range = chart.range.map((v) => v * unit.scale), ticksY = unit.ticks(range);
  const { svg, sx, sy } = axes(id, horizontal.range, range, [horizontal.title, chart.axis],
    { left: unit.left, labelY: unit.label, ticksX: horizontal.ticks, labelX: horizontal.label, ticksY });
  const x = (i) => sx(horizontal.places[i]);
  const y = (v) => sy(clamp(v, chart.range) * unit.scale);
  if (chart.bars) drawBars(svg, chart.lines, x, y, Math.max(1, 0.8 * (sx(MINUTE) - sx(0))));
  else {
    const joined = chart.lines.filter((line) => !line.dots).map(drawnOf);
    for (const line of chart.lines.filter(({ dots }) => dots)) drawDots(svg, line, x, y);
    joined.forEach((line, k) => drawLine(svg, line, x, y, line.key ? `s${k + 1}` : "", line.low && line.key ? 2 * k : 0));
    drawKeys(svg, joined, x, y);
  }
  drawLimits(svg, chart.limits, y, unit.left, ticksY.map(sy));
  drawAlarms({ svg, sx }, chart.alarms ?? [], horizontal.range, unit.left);
  const isFirst = figure.drawn === undefined;
  Object.assign(figure, { drawn, chart, x, mark: draw(svg, "path", { class: "mark" }) });
  point(figure);
  if (isFirst || figure.details.open) tabulate(figure);
};
return { add, attach, remove, plot, figures, evidenceOf, ratesOf, limitsOf };
})();
