/* Drawing of charts, in a picture of 360 by 250 units. */
const charts = (() => {
"use strict";
const { byId } = dom;
const UNITS = 360, LEFT = 56, RIGHT = 344, TOP = 10, BOTTOM = 208;

const draw = (parent, kind, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
};
const ticks = (range) => {
  const raw = (range[1] - range[0]) / 4, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 2.5, 5, 10].find((k) => k * size >= raw * 0.999);
  const values = [];
  for (let i = Math.ceil(range[0] / step); i * step <= range[1] * (1 + 1e-9); i += 1) values.push(i * step);
  return values;
};
const fourDigits = (v) => String(Number(v.toPrecision(4)));
/* Options: the left edge, the ticks of both axes, and how to write one. */
const axes = (id, rangeX, rangeY, titles, options = {}) => {
  const svg = byId(id);
  svg.replaceChildren();
  const { left = LEFT, ticksX = ticks(rangeX), ticksY = ticks(rangeY), labelX = fourDigits, labelY = fourDigits } = options;
  const sx = (v) => left + (v - rangeX[0]) / (rangeX[1] - rangeX[0]) * (RIGHT - left);
  const sy = (v) => BOTTOM - (v - rangeY[0]) / (rangeY[1] - rangeY[0]) * (BOTTOM - TOP);
  for (const v of ticksX) {
    const text = labelX(v), inside = UNITS - 3.3 * text.length;  /* a letter is about 6.6 wide */
    draw(svg, "path", { class: "grid", d: `M${sx(v)} ${TOP}V${BOTTOM}` });
    draw(svg, "text", { x: Math.min(sx(v), inside), y: BOTTOM + 14, "text-anchor": "middle" }, text);
  }
  for (const v of ticksY) {
    draw(svg, "path", { class: "grid", d: `M${left} ${sy(v)}H${RIGHT}` });
    draw(svg, "text", { x: left - 4, y: sy(v) + 4, "text-anchor": "end" }, labelY(v));
  }
  draw(svg, "text", { x: (left + RIGHT) / 2, y: 242, "text-anchor": "middle" }, titles[0]);
  draw(svg, "text", { x: 10, y: (TOP + BOTTOM) / 2, "text-anchor": "middle",
    transform: `rotate(-90 10 ${(TOP + BOTTOM) / 2})` }, titles[1]);
  return { svg, sx, sy };
};
const path = (xs, ys, sx, sy) =>
  "M" + xs.map((x, i) => `${sx(x).toFixed(1)} ${sy(ys[i]).toFixed(1)}`).join("L");
/* Where the pointer is, in the units of the picture. */
const pointer = (svg, event) => {
  const box = svg.getBoundingClientRect(), scale = UNITS / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
};
return { draw, ticks, axes, path, pointer, LEFT, RIGHT, TOP, BOTTOM };
})();
