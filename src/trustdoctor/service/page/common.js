/* What the pages of the service share. All that the service says becomes text, never markup. */
const service = (() => {
"use strict";
const { byId, counted } = dom;

const show = (id, isShown) => { byId(id).hidden = !isShown; };

/* Times. */
const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
const duration = (seconds) => {
  const [unit, length] = UNITS.find(([, unitLength]) => seconds >= unitLength) ?? UNITS[3];
  return counted(Math.max(0, Math.floor(seconds / length)), unit);
};
const clock = (iso) => `${new Date(iso).toISOString().slice(11, 19)} UTC`;

/* One request. A problem has the status (0: no connection) and the words of the service. */
const WAIT = 15000;
const problem = (status, words) => Object.assign(new Error(words), { status });
const send = (path, body, extra) => fetch(path, {
  cache: "no-store", redirect: "error", signal: AbortSignal.timeout(WAIT), ...extra,
  ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" } }),
});
const ask = async (path, body) => {
  let answer;
  try {
    answer = await send(path, body);
  } catch {
    throw problem(0, "The service does not answer");
  }
  if (answer.status === 401) {
    location.assign(location.pathname === "/review" ? "/login?next=/review" : "/login");
    return new Promise(() => {});  /* the page goes away */
  }
  const content = await answer.json().catch(() => null);
  if (!answer.ok) throw problem(answer.status, content?.detail ?? content?.title ?? "");
  if (content === null) throw problem(answer.status, "The answer is not JSON");
  return content;
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
return { show, duration, clock, send, ask, trouble };
})();
