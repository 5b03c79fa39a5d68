/* Rates with their intervals, as the library has them. */
const intervals = (() => {
"use strict";
const { data, percent } = dom;

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
return { rate };
})();
