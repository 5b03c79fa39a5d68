/* What the scripts of all pages share: elements, texts and numbers. */
const dom = (() => {
"use strict";
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

/* Control characters and changes of direction are spelled out, as the library does. */
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu;
const spell = (character) => {
  const code = character.charCodeAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
};
const visible = (text) => String(text).replace(STEERING, spell);
const sentence = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/* Elements. Children are elements or text, never markup. */
const make = (kind, attributes = {}, ...children) => {
  const node = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
/* A screen reader would read the same text aloud again if it were written again. */
const put = (id, text) => {
  const node = byId(id), shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
};

/* Numbers: two decimals, halves to even, as the library prints them. */
const fixed = (x) => {
  const exact = x.toFixed(20);
  if (!/^-?\d+\.\d{2}50{17}$/.test(exact)) return x.toFixed(2);
  const cut = exact.slice(0, -18);
  return /[02468]$/.test(cut) ? cut : x.toFixed(2);
};
const percent = (x) => fixed(x * 100);
const plainPercent = (x) => `${Number((100 * x).toFixed(2))}%`;
const count = (x) => x.toString().replace(/\B(?=(\d{3})+$)/g, ",");
const counted = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/* The minute of a time, in UTC: of milliseconds or an ISO text. */
const minute = (time) => new Date(time).toISOString().slice(0, 16).replace("T", " ");
return { byId, data, visible, sentence, make, put, fixed, percent, plainPercent, count, counted, minute };
})();
