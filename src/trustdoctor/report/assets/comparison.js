(() => {
"use strict";
const { byId, data, fixed } = dom;
const { draw, ticks, RIGHT } = charts;
const { fill } = tables;
if (!byId("gains")) return;

/* One line per score: a dot, and a bar for its interval. */
const NAMES = 130, STEP = 22, TOP = 14;
const svg = byId("gains"), bottom = TOP + STEP * data.gains.length;
svg.setAttribute("viewBox", `0 0 360 ${bottom + 40}`);
const ends = data.gains.flatMap(([, value, low, high]) => [value, low, high]);
const range = [Math.min(0, ...ends), Math.max(0, ...ends)], room = (range[1] - range[0] || 1) * 0.05;
const [from, to] = [range[0] - room, range[1] + room];
const sx = (v) => NAMES + (v - from) / (to - from) * (RIGHT - NAMES);
for (const v of ticks([from, to])) {
  draw(svg, "path", { class: v === 0 ? "ideal" : "grid", d: `M${sx(v)} ${TOP}V${bottom}` });
  draw(svg, "text", { x: sx(v), y: bottom + 14, "text-anchor": "middle" }, String(Number(v.toPrecision(4))));
}
draw(svg, "text", { x: (NAMES + RIGHT) / 2, y: bottom + 32, "text-anchor": "middle" }, "points of AUROC");
data.gains.forEach(([name, value, low, high], i) => {
  const y = TOP + STEP * (i + 0.5);
  const short = name.length > 20 ? `${name.slice(0, 19)}\u2026` : name;
  draw(svg, "text", { x: NAMES - 8, y: y + 4, "text-anchor": "end" }, short);
  draw(svg, "circle", { class: "dot", r: 4, cx: sx(value), cy: y });
  draw(svg, "path", { class: "whisker", d: `M${sx(low)} ${y - 5}v10m0 -5H${sx(high)}m0 -5v10` });
});
const signed = (x) => (x < 0 ? fixed(x) : `+${fixed(x)}`);
fill("t-gains", data.gains.map(([name, value, low, high]) =>
  [name, `${signed(value)} [${signed(low)}, ${signed(high)}]`]));
})();
