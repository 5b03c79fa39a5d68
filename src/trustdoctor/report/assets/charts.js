/* What the scripts of all pages share. */
const charts = (() => {
"use strict";
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

/* Numbers: two decimals, halves to even, as the library prints them. */
const fixed = (x) => {
  const exact = x.toFixed(20);
  if (!/^-?\d+\.\d{2}50{17}$/.test(exact)) return x.toFixed(2);
  const cut = exact.slice(0, -18);
  return /[02468]$/.test(cut) ? cut : x.toFixed(2);
};
const percent = (x) => fixed(x * 100);
const count = (x) => x.toString().replace(/\B(?=(\d{3})+$)/g, ",");

/* Drawing. */
const draw = (parent, kind, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
};
const LEFT = 56, RIGHT = 344, TOP = 10, BOTTOM = 208;
const ticks = (range) => {
  const raw = (range[1] - range[0]) / 4, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 2.5, 5, 10].find((k) => k * size >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(range[0] / step); i * step <= range[1] * (1 + 1e-9); i += 1) out.push(i * step);
  return out;
};
const plain = (v) => String(Number(v.toPrecision(4)));
/* Own may replace: the left edge, the ticks of both axes, the label of a tick of y. */
const axes = (id, x, y, titles, own = {}) => {
  const svg = byId(id);
  svg.replaceChildren();
  const { left = LEFT, ticksX = ticks(x), ticksY = ticks(y), label = plain } = own;
  const sx = (v) => left + (v - x[0]) / (x[1] - x[0]) * (RIGHT - left);
  const sy = (v) => BOTTOM - (v - y[0]) / (y[1] - y[0]) * (BOTTOM - TOP);
  for (const v of ticksX) {
    draw(svg, "path", { class: "grid", d: `M${sx(v)} ${TOP}V${BOTTOM}` });
    draw(svg, "text", { x: sx(v), y: BOTTOM + 14, "text-anchor": "middle" }, plain(v));
  }
  for (const v of ticksY) {
    draw(svg, "path", { class: "grid", d: `M${left} ${sy(v)}H${RIGHT}` });
    draw(svg, "text", { x: left - 4, y: sy(v) + 4, "text-anchor": "end" }, label(v));
  }
  draw(svg, "text", { x: (left + RIGHT) / 2, y: 242, "text-anchor": "middle" }, titles[0]);
  draw(svg, "text", { x: 10, y: (TOP + BOTTOM) / 2, "text-anchor": "middle",
    transform: `rotate(-90 10 ${(TOP + BOTTOM) / 2})` }, titles[1]);
  return { svg, sx, sy };
};
const path = (xs, ys, sx, sy) =>
  "M" + xs.map((x, i) => `${sx(x).toFixed(1)} ${sy(ys[i]).toFixed(1)}`).join("L");
const fill = (id, rows) => {
  const heads = [...byId(id).tHead.rows[0].cells].map((head) => head.textContent);
  byId(id).tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((cell, i) => {
      const td = document.createElement("td");
      td.textContent = cell;
      td.dataset.label = heads[i];
      row.append(td);
    });
    return row;
  }));
};
return { byId, data, fixed, percent, count, draw, ticks, axes, path, fill, LEFT, RIGHT, TOP, BOTTOM };
})();
