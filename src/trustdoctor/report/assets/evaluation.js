(() => {
"use strict";
const { byId, data, put, percent, count, counted } = dom;
const { draw, axes, path, TOP, BOTTOM } = charts;
const { fill } = tables;
const { rate } = intervals;
if (!byId("slider")) return;

/* Curves: exact counts of what each threshold accepts. */
const sums = (steps) => { let total = 0; return steps.map((step) => (total += step)); };
const total = data.correct + data.errors;
const curves = {};
for (const [name, steps] of Object.entries(data.scores)) {
  curves[name] = { ...steps, correct: sums(steps.correct), errors: sums(steps.errors),
    thresholds: steps.thresholds.map(Number), classRight: steps.classRight.map(sums),
    classWrong: steps.classWrong.map(sums), pairWrong: steps.pairWrong.map(sums) };
}
/* `gate`: what a person asked a gate for, which the library answered in advance.
   `asked`: what put the slider there: an offer, { targets: { risk: 0.02 } }, { cost: 20 } or
   nothing; whether these rows cannot meet it. */
const state = { score: data.open.score, at: data.open.at, unmet: false,
  gate: { target: data.open.target, value: data.open.value }, asked: {} };
const current = () => curves[state.score];
const at = (curve, i) => {
  const right = curve.correct[i], wrong = curve.errors[i], accepted = right + wrong;
  return { right, wrong, accepted, frr: (data.correct - right) / data.correct,
    trr: (data.errors - wrong) / data.errors, coverage: accepted / total,
    risk: accepted ? wrong / accepted : 0 };
};
const plain = (x) => String(Number(x.toPrecision(10)));
const price = () => Math.max(0, Number(byId("value-cost").value) || 0);
const costOf = (p) => 100 * (price() * p.wrong + total - p.accepted) / total;

/* Drawing. */
const few = (n) => [...new Set(Array.from({ length: 21 }, (_, i) => Math.round(i * (n - 1) / 20)))];
const HUNDRED = [0, 100];
const marks = {};
const dotted = (id, points, x, y, range, titles) => {
  const plot = axes(id, HUNDRED, range, titles);
  draw(plot.svg, "path", { class: "curve", d: path(points.map(x), points.map(y), plot.sx, plot.sy) });
  marks[id] = { ...plot, x, y, dot: draw(plot.svg, "circle", { class: "dot", r: 5 }) };
  return plot;
};
const top = (points, y) => Math.max(...points.map(y), 0.01) * 1.1;
const drawCost = () => {
  const curve = current(), points = curve.thresholds.map((_, i) => at(curve, i));
  dotted("cost", points, (p) => 100 * p.coverage, costOf, [0, top(points, costOf)],
    ["answered automatically, %", "reviews per 100 rows"]);
  fill("t-cost", few(points.length).map((i) => [curve.thresholds[i], percent(points[i].coverage),
    costOf(points[i]).toFixed(2)]));
};
const drawCurves = () => {
  const curve = current(), n = curve.thresholds.length;
  const points = Array.from({ length: n }, (_, i) => at(curve, i));
  const accepting = points.filter((p) => p.accepted);
  const ideal = (plot) => draw(plot.svg, "path", { class: "ideal", d: path(HUNDRED, HUNDRED, plot.sx, plot.sy) });
  ideal(dotted("roc", points, (p) => 100 * p.frr, (p) => 100 * p.trr, HUNDRED,
    ["right answers lost (FRR), %", "wrong answers caught (TRR), %"]));
  const risk = (p) => 100 * p.risk, out = (p) => 100 * p.wrong / total;
  dotted("risk-coverage", accepting, (p) => 100 * p.coverage, risk, [0, top(accepting, risk)],
    ["answered automatically (coverage), %", "let through (risk), %"]);
  dotted("budget", points, (p) => 100 - 100 * p.coverage, out, [0, top(points, out)],
    ["rows reviewed, % of all", "wrong and sent out, % of all"]);
  const edges = curve.edges, share = (list, whole) => list.map((v) => 100 * v / whole);
  const right = share(curve.right, data.correct), wrong = share(curve.wrong, data.errors);
  const high = Math.max(...right, ...wrong) * 1.05;
  const plot = axes("histogram", [edges[0], edges[edges.length - 1]], [0, high], ["doubt", "% of the right, % of the wrong"]);
  const outline = (heights) => `M${plot.sx(edges[0])} ${plot.sy(0)}` + heights.map((h, i) =>
    `V${plot.sy(h).toFixed(1)}H${plot.sx(edges[i + 1]).toFixed(1)}`).join("") + `V${plot.sy(0)}`;
  draw(plot.svg, "path", { class: "right", d: outline(right) });
  draw(plot.svg, "path", { class: "wrong", d: outline(wrong) });
  marks.histogram = { ...plot, edges, line: draw(plot.svg, "path", { class: "mark" }) };
  fill("t-histogram", right.map((_, i) => [edges[i], edges[i + 1], count(curve.right[i]), count(curve.wrong[i])]));
  fill("t-roc", few(n).map((i) => [curve.thresholds[i], percent(points[i].frr), percent(points[i].trr)]));
  fill("t-risk-coverage", few(n).map((i) => [curve.thresholds[i], percent(points[i].coverage),
    points[i].accepted ? percent(points[i].risk) : "-"]));
  fill("t-budget", few(n).map((i) => [curve.thresholds[i], percent(1 - points[i].coverage), out(points[i]).toFixed(2)]));
  drawCost();
  byId("thinning").textContent = `The slider and the curves have ${count(n)} of ${count(curve.distinct)} ` +
    "distinct thresholds, each with its exact counts; between two neighbours FRR and TRR differ by at " +
    `most ${percent(curve.step)} points and one group of tied scores, and for risks of whole tenths of a ` +
    "percent the best threshold is kept. Rows beyond the 0.1% and 99.9% quantiles are in the outermost " +
    "bars of the histogram.";
};
const drawReliability = () => {
  if (!data.reliability.length) return;
  const plot = axes("reliability", HUNDRED, HUNDRED, ["confidence, %", "right, %"]);
  draw(plot.svg, "path", { class: "ideal", d: path(HUNDRED, HUNDRED, plot.sx, plot.sy) });
  for (const [, confidence, accuracy, low, high] of data.reliability) {
    const x = plot.sx(100 * confidence);
    draw(plot.svg, "path", { class: "whisker", d: `M${x} ${plot.sy(100 * low)}V${plot.sy(100 * high)}` });
    draw(plot.svg, "circle", { class: "dot", r: 4, cx: x, cy: plot.sy(100 * accuracy) });
  }
  fill("t-reliability", data.reliability.map(([n, confidence, accuracy, low, high]) =>
    [count(n), percent(confidence), `${percent(accuracy)} [${percent(low)}, ${percent(high)}]`]));
};

/* Tables, at the nearest threshold that they have counts for. */
const nearest = (curve) => {
  let best = 0;
  curve.tableAt.forEach((place, i) => {
    if (Math.abs(place - state.at) < Math.abs(curve.tableAt[best] - state.at)) best = i;
  });
  return best;
};
const share = (part, whole) => ({ text: rate(part, whole), value: whole ? part / whole : null });
const showTables = () => {
  const curve = current(), t = nearest(curve), place = curve.tableAt[t];
  const note = place === state.at ? "At the threshold above."
    : `At ${curve.thresholds[place]}, the nearest of ${count(curve.tableAt.length)} thresholds that this table has.`;
  if (byId("pairs")) {
    byId("pairs-note").textContent = note;
    const rows = data.pairs.map(([label, predicted, n], i) => [label, predicted, curve.pairWrong[i][t], n]);
    const sum = (column) => rows.reduce((all, row) => all + row[column], 0);
    const others = ["all others", "", curve.errors[place] - sum(2), data.errors - sum(3)];
    rows.sort((a, b) => b[2] - a[2] || b[3] - a[3]);
    sortableTables.put(byId("pairs"), [...rows, others].filter((row) => row[2])
      .map((row) => [row[0], row[1], count(row[2]), count(row[3])]));
  }
  if (byId("classes")) {
    byId("classes-note").textContent = note;
    const rows = data.classes.map((name, i) => {
      const right = curve.classRight[i], wrong = curve.classWrong[i], end = right.length - 1;
      const n = right[end] + wrong[end], accepted = right[t] + wrong[t];
      return [{ text: name, head: true }, { text: count(n), value: n }, share(right[end], n),
        share(right[end] - right[t], right[end]), share(wrong[end] - wrong[t], wrong[end]), share(wrong[t], accepted)];
    });
    rows.sort((a, b) => (b[5].value ?? -1) - (a[5].value ?? -1));
    sortableTables.put(byId("classes"), rows);
  }
};
const FIRST = 10;  /* rows that are shown at once */
const showRows = () => {
  const curve = current(), threshold = curve.thresholds[state.at], wanted = byId("search").value.trim().toLowerCase();
  const every = data.kinds[state.score][Number(byId("kind").value)]
    .map(([place, doubt]) => [place, doubt ?? -Infinity]);
  const words = (row) => [row.id, row.label, row.predicted, row.text ?? ""].join(" ").toLowerCase();
  const matching = every.filter(([place]) => words(data.rows[place]).includes(wanted));
  const automatic = matching.filter(([, doubt]) => doubt <= threshold).length;
  const whole = Number(byId("kind").value) ? data.correct : data.errors;
  byId("rows-note").textContent = `${counted(matching.length, "row")}, by ${state.score}: ` +
    `${count(automatic)} answered automatically at this threshold, ${count(matching.length - automatic)} to a person. ` +
    `The page has ${count(every.length)} of the ${count(whole)}, and searches those.`;
  put("doubt-head", curve.negated ? "confidence" : "doubt");
  const limit = state.all ? matching.length : FIRST;
  byId("more").hidden = matching.length <= limit;
  put("more", `Show all ${count(matching.length)}`);
  const cellsOf = ([place, doubt]) => {
    const row = data.rows[place], cells = [{ text: row.id, head: true }];
    if (data.named) cells.push(row.label, row.predicted);
    const score = Number.isFinite(doubt) ? (curve.negated ? -doubt : doubt).toFixed(3) : "-inf";
    cells.push(score, doubt <= threshold ? "automatic" : "a person");
    if (row.image !== undefined) cells.push({ text: row.image ? `Row ${row.id}` : "", image: row.image });
    if (row.text !== undefined) cells.push({ text: row.text, wide: true });
    return cells;
  };
  sortableTables.put(byId("rows"), matching.slice(0, limit).map(cellsOf), matching.map(cellsOf));
};

/* Targets. */
const TINY = 1e-9;  /* typed percents are not exact binary shares */
const TARGETS = {
  risk: { most: true, last: true, of: (p) => (p.accepted ? p.risk : Infinity), words: "let through (risk)" },
  frr: { most: true, last: false, of: (p) => p.frr, words: "lost (FRR)" },
  trr: { most: false, last: true, of: (p) => p.trr, words: "caught (TRR)" },
  coverage: { most: false, last: false, of: (p) => p.coverage, words: "automatic (coverage)" },
};
const short = (key, p, wanted) => {  /* by how much a target is missed */
  const { most, of } = TARGETS[key], reached = of(p);
  return Math.max(0, most ? reached - wanted - TINY : wanted - TINY - reached);
};
const places = () => current().thresholds.map((_, i) => i);
const search = (targets) => {
  const curve = current(), keys = Object.keys(targets);
  const good = places().filter((i) => keys.every((key) => !short(key, at(curve, i), targets[key])));
  return keys.some((key) => TARGETS[key].last) ? good.at(-1) : good[0];
};
const shown = (key, x) => (Number.isFinite(x) ? `${percent(x)}%` : "nothing");
/* Where targets conflict: what each comes to where the others are met. */
const conflict = (targets) => {
  const curve = current(), keys = Object.keys(targets);
  if (keys.length === 1) {
    const [key] = keys, ends = places().map((i) => TARGETS[key].of(at(curve, i)));
    const best = TARGETS[key].most ? Math.min(...ends) : Math.max(...ends);
    return `No threshold of ${state.score} has ${TARGETS[key].words} at ` +
      `${TARGETS[key].most ? "most" : "least"} ${plain(100 * targets[key])}% on these rows; the nearest is ${shown(key, best)}.`;
  }
  const near = keys.map((key) => {
    const others = Object.fromEntries(Object.entries(targets).filter(([k]) => k !== key));
    const good = places().filter((i) => Object.keys(others).every((k) => !short(k, at(curve, i), others[k])));
    if (!good.length) return null;
    const ends = good.map((i) => TARGETS[key].of(at(curve, i)));
    const best = TARGETS[key].most ? Math.min(...ends) : Math.max(...ends);
    return `${TARGETS[key].words} comes to ${shown(key, best)} where ${keys.length > 2 ? "the others are" : "the other is"} met`;
  }).filter(Boolean);
  return "These targets conflict on these rows: no threshold meets all of them. " +
    (near.length ? `${near.join("; ").replace(/^./, (c) => c.toUpperCase())}.` : "Any of them alone excludes the others.");
};
const closest = (targets) => {
  const curve = current();
  const missed = (i) => Object.keys(targets).reduce((sum, key) => sum + Math.min(1, short(key, at(curve, i), targets[key])), 0);
  return places().reduce((best, i) => (missed(i) < missed(best) - 1e-12 ? i : best), 0);
};

/* Commands, as calibrate takes them. */
const target = (name, value) => (data.command.shell
  ? `--${name}${name === "threshold" ? "=" : " "}${value}` : `${name}=${value}`);
const filled = (parts, name, value) =>
  parts[0] + target(name, value) + parts[1] + data.command.flags[state.score] + parts[2];

/* The gate that one gets: words and places come from the library. */
const offerOf = ({ target: name, value }) =>
  current().offers.find((offer) => offer.target === name && offer.value === value);
const showGate = () => {
  const { target: name, value } = state.gate;
  const offer = offerOf(state.gate);
  if (name === "cost") {
    const now = at(current(), state.at);
    put("say-gate", `No promise goes with the lowest cost. On these rows it lies where ${percent(now.coverage)}% are ` +
      `answered automatically: 100 rows cost as much as ${costOf(now).toFixed(2)} reviews.`);
    put("say-confusion", "");
    put("say-simulated", `Answering all of 100 rows costs ${(100 * value * data.errors / total).toFixed(2)}, reviewing all 100.`);
  } else {
    put("say-gate", offer.headline);
    put("say-simulated", offer.detail);
    put("say-confusion", offer.confusion);
  }
  put("promise-note", current().note);
  commands.put("promise", filled(data.command.gate, name, value));
  if (byId("menu")) commands.put("menu", data.command.menu.join(data.command.flags[state.score]));
};
const why = (now) => {
  const { targets, cost, offer } = state.asked, name = state.score;
  if (offer) return offer.about;
  if (cost !== undefined) {
    return `At ${plain(cost)} ${cost === 1 ? "review" : "reviews"} per wrong answer this is the cheapest threshold of ${name} on these rows: ` +
      `100 rows cost as much as ${costOf(now).toFixed(2)} reviews.`;
  }
  if (!targets) return `The threshold of ${name} at the slider.`;
  const keys = Object.keys(targets);
  if (state.unmet) return `The threshold of ${name} that comes nearest on these rows.`;
  if (keys.length > 1) return `A threshold of ${name} that meets all ${keys.length} targets on these rows.`;
  const [key] = keys, goal = plain(100 * targets[key]);
  return {
    risk: `Of the thresholds of ${name} that let at most ${goal}% wrong answers through on these rows, this one answers the most.`,
    frr: `Of the thresholds of ${name} that lose at most ${goal}% of the right answers on these rows, this one catches the most wrong ones.`,
    trr: `Of the thresholds of ${name} that catch at least ${goal}% of the wrong answers on these rows, this one answers the most.`,
    coverage: `Of the thresholds of ${name} that answer at least ${goal}% of these rows, this one catches the most wrong answers.`,
  }[key];
};

/* One place moves everything. */
const show = () => {
  const curve = current(), now = at(curve, state.at), threshold = curve.thresholds[state.at];
  const slider = byId("slider"), sent = total - now.accepted;
  slider.max = curve.thresholds.length - 1;
  slider.value = state.at;
  const gamma = curve.odds && threshold < 700 ? ` (gamma ${Number(Math.exp(threshold).toPrecision(4))})` : "";
  const stated = curve.negated ? ` (confidence below ${0 - threshold})` : "";
  put("threshold", `${threshold}${gamma}${stated}`);
  slider.setAttribute("aria-valuetext", `reject ${state.score} above ${threshold}: ` +
    `${percent(now.coverage)}% accepted, risk ${now.accepted ? `${percent(now.risk)}%` : "-"}`);
  for (const [id, part, whole] of [["coverage", now.accepted, total], ["rejected", sent, total],
    ["risk", now.wrong, now.accepted], ["trr", data.errors - now.wrong, data.errors],
    ["frr", data.correct - now.right, data.correct]]) {
    put(id, rate(part, whole));
    put(`n-${id}`, `${count(part)} of ${count(whole)}`);
  }
  put("say-person", `${count(sent)} of ${counted(total, "row")} (${percent(sent / total)}%) ${sent === 1 ? "goes" : "go"} to a person.`);
  put("say-wrong", now.accepted ? `${counted(now.wrong, "wrong answer")} still ${now.wrong === 1 ? "goes" : "go"} out: ` +
    `${rate(now.wrong, now.accepted)} % of the ${count(now.accepted)} given automatically.`
    : "No answer is given automatically, so no wrong one goes out.");
  put("say-why", why(now));
  for (const id of ["roc", "risk-coverage", "budget", "cost"]) {
    const { dot, sx, sy, x, y } = marks[id];
    dot.setAttribute("cx", sx(x(now)));
    dot.setAttribute("cy", sy(y(now)));
  }
  const { edges, line, sx } = marks.histogram;
  const x = sx(Math.min(Math.max(threshold, edges[0]), edges[edges.length - 1]));
  line.setAttribute("d", `M${x} ${TOP}V${BOTTOM}`);
  const negated = curve.negated && data.command.shell;
  commands.put("command", filled(data.command.cut, "threshold", negated ? 0 - threshold : threshold));
  showTables();
  showRows();
};

/* What a person asks for. */
const number = (id) => { const input = byId(id); return input.value === "" ? -1 : Number(input.value); };
const complain = (text) => { put("message", text); };
const go = (asked, place, message) => {
  state.asked = asked;
  state.at = place;
  state.unmet = message !== "";
  put("message", message);
  show();
};
const meet = (targets) => {
  const place = search(targets);
  go({ targets }, place ?? closest(targets), place === undefined ? conflict(targets) : "");
};
/* What was typed before is no answer to what is typed now. */
const refuse = (text) => {
  put("unmet", text);
  byId("answer").classList.toggle("stale", text !== "");
  if (text) commands.put("promise", "");
};
const SHARE = "Give a percentage above 0 and below 100.";
const ask = () => {
  const matter = document.querySelector('input[name="matter"]:checked').value;
  const value = number(`value-${matter}`);
  if (matter === "cost" && !(value >= 1)) {
    refuse("Give the cost of a wrong answer in reviews, at least 1. Where it costs less than a review, no review pays.");
    return;
  }
  refuse("");
  forget();
  state.gate = { target: matter, value };
  if (matter === "cost") {
    const curve = current(), cost = (i) => costOf(at(curve, i));
    drawCost();
    go({ cost: value }, places().reduce((best, i) => (cost(i) < cost(best) ? i : best), 0), "");
  } else {
    const offer = offerOf(state.gate);
    go({ offer }, offer.at, "");
  }
  showGate();
};
const typed = () => {
  const targets = {};
  for (const key of Object.keys(TARGETS)) {
    const input = byId(`want-${key}`), wanted = Number(input.value) / 100;
    if (input.value === "" && !input.validity.badInput) continue;
    if (input.value === "" || !(wanted > 0 && wanted < 1)) {
      complain(SHARE);
      return;
    }
    targets[key] = wanted;
  }
  if (Object.keys(targets).length) meet(targets);
};
/* Only what was asked last stays in the fields. */
const forget = () => Object.keys(TARGETS).forEach((key) => { byId(`want-${key}`).value = ""; });
byId("score").value = state.score;
byId("score").addEventListener("change", (event) => {
  const { targets } = state.asked;
  state.score = event.target.value;
  state.at = 0;
  complain("");
  drawCurves();
  ask();
  if (targets) meet(targets);  /* the same wish, by another score */
});
byId("slider").addEventListener("input", (event) => {
  forget();
  go({}, Number(event.target.value), "");
});
document.querySelectorAll("#question input, #question select").forEach((input) => {
  const choose = () => {
    input.closest(".choice").querySelector('input[type="radio"]').checked = true;
    ask();
  };
  input.addEventListener("input", choose);
});
byId("question").addEventListener("submit", (event) => event.preventDefault());
byId("targets").addEventListener("submit", (event) => { event.preventDefault(); typed(); });
for (const key of Object.keys(TARGETS)) byId(`want-${key}`).addEventListener("change", typed);
byId("kind").addEventListener("change", showRows);
byId("search").addEventListener("input", showRows);
byId("more").addEventListener("click", () => { state.all = true; showRows(); });
drawCurves();
drawReliability();
ask();
})();
