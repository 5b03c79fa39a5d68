/* What the pages of the service share. All that a server says becomes text, never markup. */
const service = (() => {
"use strict";
const { byId } = charts;

/* Control characters and changes of direction are spelled out, as the library does. */
const STEERING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu;
const spell = (found) => {
  const code = found.charCodeAt(0).toString(16);
  return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
};
const visible = (text) => String(text).replace(STEERING, spell);
const sentence = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);
const many = (n, what) => `${charts.count(n)} ${what}${n === 1 ? "" : "s"}`;

const make = (kind, attributes = {}, ...inside) => {
  const out = document.createElement(kind);
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, value);
  out.append(...inside);
  return out;
};
/* Writing the same again would be read aloud again. */
const put = (id, text) => {
  const node = byId(id), said = visible(text);
  if (node.textContent !== said) node.textContent = said;
};
const show = (id, wanted) => { byId(id).hidden = !wanted; };

/* Times. */
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const duration = (seconds) => {
  const [unit, length] = UNITS.find(([, own]) => seconds >= own) ?? UNITS[3];
  return many(Math.max(0, Math.floor(seconds / length)), unit);
};
const when = (iso) => new Date(iso).toISOString().slice(0, 16).replace("T", " ");
const clock = (iso) => `${new Date(iso).toISOString().slice(11, 19)} UTC`;

/* One request. A problem has the status (0: no connection) and the words of the service. */
const WAIT = 15000;
const problem = (status, words) => Object.assign(new Error(words), { status });
const sent = (path, body, extra) => fetch(path, {
  cache: "no-store", redirect: "error", signal: AbortSignal.timeout(WAIT), ...extra,
  ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" } }),
});
const ask = async (path, body) => {
  let answer;
  try {
    answer = await sent(path, body);
  } catch {
    throw problem(0, "The service does not answer");
  }
  if (answer.status === 401) {
    location.assign(location.pathname === "/review" ? "/login?next=/review" : "/login");
    return new Promise(() => {});  /* the page goes away */
  }
  const said = await answer.json().catch(() => null);
  if (!answer.ok) throw problem(answer.status, said?.detail ?? said?.title ?? "");
  if (said === null) throw problem(answer.status, "The answer is not JSON");
  return said;
};
const trouble = ({ status, message }) => {
  const plain = {
    0: "The service does not answer: it is down, or the network is.",
    403: "Your token may not do this. It needs the role label or admin.",
    429: "The service has too much to do right now.",
    503: "The service cannot reach its store right now.",
  }[status] ?? `The service refused (${status}).`;
  return message && status ? `${plain} It says: ${message}` : plain;
};
return { visible, sentence, many, make, put, show, duration, when, clock, sent, ask, trouble };
})();
