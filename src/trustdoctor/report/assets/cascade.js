(() => {
"use strict";
const { byId, data, sentence, put, percent, count } = dom;
const { draw, axes, path, pointer, LEFT, RIGHT, TOP, BOTTOM } = charts;
const { fill } = tables;

const cost = (v) => {
  const [integer, decimals] = v.toFixed(data.digits).split(".");
  return count(integer) + (decimals === undefined ? "" : `.${decimals}`);
};
const plot = axes("picture", data.rates.map((v) => 100 * v), data.costs, [data.axis, "cost per row"]);
const x = (rate) => plot.sx(100 * rate), y = plot.sy;
const inside = ([rate, price]) => rate <= data.rates[1] && price >= data.costs[0] && price <= data.costs[1];

/* Every point of the picture, with what it is; the order is that of the table. */
const nth = (i) => `policy ${count(i + 1)} of ${count(data.tested.length)} tested`;
const tested = data.tested.map((at, i) => {
  const last = i === data.passed - 1;
  return { at, what: `${nth(i)}: ${i >= data.passed ? "failed" : last ? "passed, the cascade" : "passed"}` };
});
const points = [
  tested[data.passed - 1],
  ...data.models.map((model) => ({ at: model.at, what: `${model.name} alone, with its own gate` })),
  ...tested.filter((_, i) => i !== data.passed - 1),
  ...data.models.flatMap((model) => model.curve.map((at) => ({ at, what: `${model.name} alone` }))),
  ...data.policies.map((at) => ({ at, what: "policy, not tested" })),
].filter((point) => point !== undefined);

/* What lies beyond the edges is cut off. */
const clip = draw(plot.svg, "clipPath", { id: "inside" });
draw(clip, "rect", { x: LEFT, y: TOP, width: RIGHT - LEFT, height: BOTTOM - TOP });
const layer = draw(plot.svg, "g", { "clip-path": "url(#inside)" });
draw(layer, "path", { class: "policies",
  d: data.policies.filter(inside).map(([rate, price]) => `M${x(rate).toFixed(1)} ${y(price).toFixed(1)}h0`).join("") });
for (const { curve, kind } of data.models) {
  if (curve.length) draw(layer, "path", { class: `curve ${kind}`,
    d: path(curve.map((at) => at[0]), curve.map((at) => at[1]), x, y) });
}
data.tested.forEach(([rate, price], i) => {
  const [cx, cy] = [x(rate), y(price)];
  if (i < data.passed) draw(layer, "circle", { class: "tested", r: 2.2, cx, cy });
  else draw(layer, "path", { class: "failed", d: `M${cx - 3} ${cy - 3}l6 6m0 -6l-6 6` });
});

const limit = x(data.limit);
draw(plot.svg, "path", { class: "limit", d: `M${limit} ${TOP}V${BOTTOM}` });
draw(plot.svg, "text", { class: "limit", x: limit + 4, y: TOP + 10 }, `at most ${Number((100 * data.limit).toPrecision(6))}%`);
for (const { at: [rate, price], key, kind } of data.models) {
  if (!inside([rate, price])) continue;
  draw(plot.svg, "rect", { class: `square ${kind}`, x: x(rate) - 4, y: y(price) - 4, width: 8, height: 8 });
  draw(plot.svg, "text", { class: `name ${kind}`, x: x(rate) + 7, y: y(price) - 4 }, key);
}
const chosen = data.tested[data.passed - 1];
if (chosen !== undefined) {
  draw(plot.svg, "circle", { class: "dot", r: 5.5, cx: x(chosen[0]), cy: y(chosen[1]) });
  draw(plot.svg, "text", { class: "chosen", x: x(chosen[0]) - 8, y: y(chosen[1]) + 12, "text-anchor": "end" }, "cascade");
}

/* What lies under the pointer, or where the slider is, is said below. */
const cursor = draw(plot.svg, "circle", { class: "cursor", r: 8 });
const show = ({ at: [rate, price], what }) => {
  if (inside([rate, price])) {
    cursor.setAttribute("cx", x(rate));
    cursor.setAttribute("cy", y(price));
  }
  cursor.setAttribute("visibility", inside([rate, price]) ? "visible" : "hidden");
  const words = `${what}: ${data.rate} ${percent(rate)}%, cost ${cost(price)} per row`;
  put("at-picture", sentence(words));
  return words;
};
const walk = byId("walk");
const step = () => { walk.setAttribute("aria-valuetext", show(tested[walk.value - 1])); };
const visiblePoints = points.filter(({ at }) => inside(at));
plot.svg.addEventListener("pointermove", (event) => {
  const here = pointer(plot.svg, event);
  const distance = ({ at }) => Math.hypot(x(at[0]) - here[0], y(at[1]) - here[1]);
  let nearest = visiblePoints[0];
  for (const point of visiblePoints) if (distance(point) < distance(nearest)) nearest = point;
  if (nearest !== undefined) show(nearest);
});
plot.svg.addEventListener("pointerleave", step);
walk.addEventListener("input", step);
fill("t-picture", points.map(({ at: [rate, price], what }) => [what, percent(rate), cost(price)]));
if (tested.length) step();
})();
