(() => {
"use strict";
const { byId, data, percent, count, draw, axes, path, fill, TOP, BOTTOM } = charts;

/* Clopper-Pearson: quantiles of the beta distribution by bisection. */
const lgamma = (x) => {
  if (x < 15) {
    let shift = 0;
    while (x < 15) { shift -= Math.log(x); x += 1; }
    return shift + lgamma(x);
  }
  const y = 1 / (x * x);
  return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) +
    (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x;
};
const fraction = (a, b, x) => {
  const tiny = 1e-300;
  let c = 1, d = 1 - (a + b) * x / (a + 1);
  if (Math.abs(d) < tiny) d = tiny;
  d = 1 / d;
  let h = d;
  for (let m = 1; m <= 20000; m += 1) {
    let step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 + step * d; if (Math.abs(d) < tiny) d = tiny;
    c = 1 + step / c; if (Math.abs(c) < tiny) c = tiny;
    d = 1 / d; h *= d * c;
    step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 + step * d; if (Math.abs(d) < tiny) d = tiny;
    c = 1 + step / c; if (Math.abs(c) < tiny) c = tiny;
    d = 1 / d;
    const change = d * c;
    h *= change;
    if (Math.abs(change - 1) < 1e-15) break;
  }
  return h;
};
const below = (a, b, x) => {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(lgamma(a + b) - lgamma(a) - lgamma(b) +
    a * Math.log(x) + b * Math.log1p(-x));
  return x < (a + 1) / (a + b + 2)
    ? front * fraction(a, b, x) / a
    : 1 - front * fraction(b, a, 1 - x) / b;
};
const quantile = (a, b, p) => {
  let low = 0, high = 1;
  for (let i = 0; i < 60; i += 1) {
    const middle = (low + high) / 2;
    if (below(a, b, middle) < p) low = middle; else high = middle;
  }
  return (low + high) / 2;
};
const tail = (1 - data.confidence) / 2;
const rate = (part, whole) => {
  if (!whole) return "-";
  const low = part === 0 ? 0 : quantile(part, whole - part + 1, tail);
  const high = part === whole ? 1 : quantile(part + 1, whole - part, 1 - tail);
  return `${percent(part / whole)} [${percent(low)}, ${percent(high)}]`;
};

/* Curves: exact counts of what each threshold accepts. */
const sums = (steps) => { let total = 0; return steps.map((step) => (total += step)); };
const total = data.correct + data.errors;
const curves = {};
for (const [name, own] of Object.entries(data.scores)) {
  curves[name] = { ...own, correct: sums(own.correct), errors: sums(own.errors),
    thresholds: own.thresholds.map(Number) };
}
const state = { score: data.open.score, at: data.open.at };
const curve = () => curves[state.score];
const at = (own, i) => {
  const right = own.correct[i], wrong = own.errors[i], accepted = right + wrong;
  return { right, wrong, accepted, frr: (data.correct - right) / data.correct,
    trr: (data.errors - wrong) / data.errors, coverage: accepted / total,
    risk: accepted ? wrong / accepted : 0 };
};

/* Drawing. */
const few = (n) => [...new Set(Array.from({ length: 21 }, (_, i) => Math.round(i * (n - 1) / 20)))];
const marks = {};
const drawCurves = () => {
  const own = curve(), n = own.thresholds.length;
  const points = Array.from({ length: n }, (_, i) => at(own, i));
  const of = (key) => points.map((p) => p[key]);
  let plot = axes("roc", [0, 1], [0, 1], ["FRR", "TRR"]);
  draw(plot.svg, "path", { class: "ideal", d: path([0, 1], [0, 1], plot.sx, plot.sy) });
  draw(plot.svg, "path", { class: "curve", d: path(of("frr"), of("trr"), plot.sx, plot.sy) });
  marks.roc = { ...plot, dot: draw(plot.svg, "circle", { class: "dot", r: 5 }) };
  const kept = points.filter((p) => p.accepted);
  const top = Math.max(...kept.map((p) => p.risk), 1e-4) * 1.1;
  plot = axes("risk-coverage", [0, 1], [0, top], ["coverage", "risk"]);
  draw(plot.svg, "path", { class: "curve",
    d: path(kept.map((p) => p.coverage), kept.map((p) => p.risk), plot.sx, plot.sy) });
  marks.risk = { ...plot, dot: draw(plot.svg, "circle", { class: "dot", r: 5 }) };
  const edges = own.edges, share = (list, whole) => list.map((v) => v / whole);
  const right = share(own.right, data.correct), wrong = share(own.wrong, data.errors);
  const high = Math.max(...right, ...wrong) * 1.05;
  plot = axes("histogram", [edges[0], edges[edges.length - 1]], [0, high], ["doubt", "share of the rows"]);
  const outline = (heights) => `M${plot.sx(edges[0])} ${plot.sy(0)}` + heights.map((h, i) =>
    `V${plot.sy(h).toFixed(1)}H${plot.sx(edges[i + 1]).toFixed(1)}`).join("") + `V${plot.sy(0)}`;
  draw(plot.svg, "path", { class: "right", d: outline(right) });
  draw(plot.svg, "path", { class: "wrong", d: outline(wrong) });
  marks.histogram = { ...plot, edges, line: draw(plot.svg, "path", { class: "mark" }) };
  fill("t-histogram", right.map((_, i) => [edges[i], edges[i + 1], count(own.right[i]), count(own.wrong[i])]));
  fill("t-roc", few(n).map((i) => [own.thresholds[i], percent(points[i].frr), percent(points[i].trr)]));
  fill("t-risk-coverage", few(n).map((i) => [own.thresholds[i], percent(points[i].coverage),
    points[i].accepted ? percent(points[i].risk) : "-"]));
  byId("thinning").textContent = `The slider and the curves have ${count(n)} of ${count(own.distinct)} ` +
    "distinct thresholds, each with its exact counts; between two neighbours FRR and TRR differ by at " +
    `most ${percent(own.step)} points and one group of tied scores, and for risks of whole tenths of a ` +
    "percent the best threshold is kept. Rows beyond the 0.1% and 99.9% quantiles are in the outermost " +
    "bars of the histogram.";
};
const drawReliability = () => {
  if (!data.reliability.length) return;
  const plot = axes("reliability", [0, 1], [0, 1], ["confidence", "accuracy"]);
  draw(plot.svg, "path", { class: "ideal", d: path([0, 1], [0, 1], plot.sx, plot.sy) });
  for (const [, said, was, low, high] of data.reliability) {
    draw(plot.svg, "path", { class: "whisker", d: `M${plot.sx(said)} ${plot.sy(low)}V${plot.sy(high)}` });
    draw(plot.svg, "circle", { class: "dot", r: 4, cx: plot.sx(said), cy: plot.sy(was) });
  }
  fill("t-reliability", data.reliability.map(([n, said, was, low, high]) =>
    [count(n), percent(said), `${percent(was)} [${percent(low)}, ${percent(high)}]`]));
};

/* One place moves everything. */
const show = () => {
  const own = curve(), now = at(own, state.at), threshold = own.thresholds[state.at];
  const slider = byId("slider");
  slider.max = own.thresholds.length - 1;
  slider.value = state.at;
  const gamma = own.odds && threshold < 700 ? ` (gamma ${Number(Math.exp(threshold).toPrecision(4))})` : "";
  const stated = own.negated ? ` (confidence below ${0 - threshold})` : "";
  byId("threshold").textContent = `${threshold}${gamma}${stated}`;
  slider.setAttribute("aria-valuetext", `reject ${state.score} above ${threshold}: ` +
    `${percent(now.coverage)} % accepted, risk ${now.accepted ? percent(now.risk) : "-"} %`);
  byId("n-accepted").textContent = `${count(now.accepted)} of ${count(total)}`;
  byId("coverage").textContent = rate(now.accepted, total);
  byId("n-rejected").textContent = `${count(total - now.accepted)} of ${count(total)}`;
  byId("rejected").textContent = rate(total - now.accepted, total);
  byId("n-risk").textContent = `${count(now.wrong)} of ${count(now.accepted)}`;
  byId("risk").textContent = rate(now.wrong, now.accepted);
  byId("n-trr").textContent = `${count(data.errors - now.wrong)} of ${count(data.errors)}`;
  byId("trr").textContent = rate(data.errors - now.wrong, data.errors);
  byId("n-frr").textContent = `${count(data.correct - now.right)} of ${count(data.correct)}`;
  byId("frr").textContent = rate(data.correct - now.right, data.correct);
  marks.roc.dot.setAttribute("cx", marks.roc.sx(now.frr));
  marks.roc.dot.setAttribute("cy", marks.roc.sy(now.trr));
  marks.risk.dot.setAttribute("cx", marks.risk.sx(now.coverage));
  marks.risk.dot.setAttribute("cy", marks.risk.sy(now.risk));
  const { edges, line, sx } = marks.histogram;
  const x = sx(Math.min(Math.max(threshold, edges[0]), edges[edges.length - 1]));
  line.setAttribute("d", `M${x} ${TOP}V${BOTTOM}`);
  const { file, options } = data.command;
  const rest = `--score ${data.scores[state.score].flag}${options} -o gate.json`;
  const given = own.negated ? 0 - threshold : threshold;
  byId("command").textContent = `trustdoctor calibrate ${file} --threshold=${given} ${rest}`;
  const target = Math.min(0.99, Math.max(0.001, Math.ceil(1000 * now.frr) / 1000));
  byId("promise").textContent = `trustdoctor calibrate OTHER_ROWS --frr ${target} ${rest}`;
};

/* Typed targets: the threshold that meets them and gives away least. */
const TINY = 1e-9;  /* typed percents are not exact binary shares */
const TARGETS = {
  frr: { meets: (p, x) => p.frr <= x + TINY, last: false },
  trr: { meets: (p, x) => p.trr >= x - TINY, last: true },
  risk: { meets: (p, x) => p.accepted && p.risk <= x + TINY, last: true },
  coverage: { meets: (p, x) => p.coverage >= x - TINY, last: false },
};
const find = (key, wanted) => {
  const own = curve(), n = own.thresholds.length, { meets, last } = TARGETS[key];
  const order = Array.from({ length: n }, (_, i) => (last ? n - 1 - i : i));
  return order.find((i) => meets(at(own, i), wanted));
};
const seek = (key) => {
  const input = byId(`want-${key}`), wanted = Number(input.value) / 100;
  if (input.value === "" && !input.validity.badInput) return;
  if (input.value === "" || !(wanted >= 0 && wanted <= 1)) {
    byId("message").textContent = "A share lies between 0 and 100 %.";
    return;
  }
  const found = find(key, wanted);
  byId("message").textContent = found === undefined
    ? `No threshold here meets ${key} ${input.value} %.` : "";
  if (found !== undefined) { state.at = found; show(); }
};

/* Tables that sort. */
const sortable = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column], value = cell.dataset.value;
      return value === undefined ? cell.textContent : value === "" ? -Infinity : Number(value);
    };
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const x = key(a), y = key(b);
      const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }));
};
document.querySelectorAll("table.sortable").forEach(sortable);

if (!byId("slider")) return;
const select = byId("score");
select.value = state.score;
select.addEventListener("change", () => {
  const coverage = at(curve(), state.at).coverage;
  state.score = select.value;
  state.at = find("coverage", coverage) ?? 0;
  byId("message").textContent = "";
  drawCurves();
  show();
});
byId("slider").addEventListener("input", (event) => {
  state.at = Number(event.target.value);
  byId("message").textContent = "";
  show();
});
let lastTarget = null;
for (const key of Object.keys(TARGETS)) {
  byId(`want-${key}`).addEventListener("change", () => { lastTarget = key; seek(key); });
}
byId("targets").addEventListener("submit", (event) => {
  event.preventDefault();
  const focused = document.activeElement.id.replace("want-", "");
  seek(focused in TARGETS ? focused : lastTarget ?? "frr");
});
byId("copy").addEventListener("click", async () => {
  const text = byId("command").textContent;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(byId("command"));
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    done = document.execCommand("copy");
  }
  byId("copied").textContent = done ? "Copied." : "Select it and copy it by hand.";
});
drawCurves();
drawReliability();
show();
})();
