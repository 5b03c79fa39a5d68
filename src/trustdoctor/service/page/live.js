(() => {
"use strict";
const { byId, data, visible, sentence, make, put, percent, plainPercent, count, counted, minute } = dom;
const { show, duration, clock, ask, trouble } = service;
const MINUTE = 60000, SHOWN = 180;
const nameOf = (test) => sentence(Object.hasOwn(data.names, test) ? data.names[test] : test);
const share = (part, whole) => (whole ? `${percent(part / whole)}%` : "-");
const band = ([value, low, high]) => `${percent(value)}% [${percent(low)}%, ${percent(high)}%]`;

/* Only what changed is written: a reader, or a pointer, may be there. */
const written = new Map();
const changed = (what, value) => {
  const text = JSON.stringify(value), same = written.get(what) === text;
  written.set(what, text);
  return !same;
};
const fillTable = (id, rows) => {
  if (changed(id, rows)) tables.fill(id, rows.map((cells) => cells.map(visible)));
};

/* Labels tell little until they are many and the interval is narrow. What a window told stays so
   while the next one is short. What is asked of each group must be told of each. */
const ENOUGH = 100, NARROW = 0.2;
const needsLabels = ({ name }) => !data.unlabelled.includes(name);
const isNarrow = ([, low, high, n]) => n >= ENOUGH && high - low <= NARROW;
const toldOf = ({ name, estimate }, history) => {
  const { estimates = {} } = history[history.length - 1] ?? {};
  const own = estimate ? [[name, ["value", "low", "high", "n", "window"].map((key) => estimate[key])]]
    : Object.entries(estimates).filter(([key]) => key.startsWith(`${name}[`));
  return own.map(([key, now]) => {
    const before = history.findLast((step) => step.estimates[key]?.[4] === now[4] - 1)?.estimates[key];
    const seen = before ? [now, before] : [now];
    return { group: key.slice(name.length + 1, -1), n: Math.max(...seen.map((one) => one[3])), sure: seen.some(isNarrow) };
  });
};
const NO_SIGN = "No sign against it yet";
const untold = (test, history) => {
  if (test.verdict !== "holds" || !needsLabels(test)) return null;
  const weak = toldOf(test, history).filter(({ sure }) => !sure).sort((a, b) => a.n - b.n)[0];
  return weak ? { ...weak, words: `${counted(weak.n, "label")}${weak.group ? ` of ${weak.group}` : ""} so far; more will tell.` } : null;
};

/* The headline. */
const UNKNOWN = ["unsure", "Cannot tell yet", "Rows come in, but no labels yet: they tell whether the promise holds."];
const verdictOf = ({ traffic, watch }) => {
  const tests = watch?.tests ?? [], verdicts = tests.map((test) => test.verdict);
  const said = watch?.headline ? `${sentence(watch.headline)}.` : "";
  if (verdicts.includes("alarm")) {
    const first = tests.flatMap(({ alarm }) => (alarm ? [alarm.at] : [])).sort()[0];
    return ["alarm", "ALARM", first ? `${said} Since ${minute(first)} UTC.` : said];
  }
  if (verdicts.includes("cannot tell")) return ["unsure", "Cannot tell", said];
  if (!traffic.rows) return ["unsure", "No rows yet", "The service waits for the first one."];
  if (watch?.headline === "no rows yet") return ["unsure", "No rows yet", "This version has not decided a row."];
  if (!tests.length) return ["unsure", "Nothing to watch", said];
  if (verdicts.every((own) => own === "no rows yet")) return ["unsure", "No rows yet", "This version has not decided a row."];
  if (verdicts.includes("no rows yet")) return UNKNOWN;
  if (tests.some((test) => needsLabels(test) && !toldOf(test, watch.history).length)) return UNKNOWN;
  const [weak] = tests.map((test) => untold(test, watch.history)).filter(Boolean).sort((a, b) => a.n - b.n);
  return weak ? ["unsure", NO_SIGN, `${said} ${sentence(weak.words)}`] : ["", "Holds", said];
};
const showVerdict = (status, live) => {
  const [state, title, said] = verdictOf(status), { gate } = status;
  byId("verdict").className = `verdict ${state}`;
  put("title", live ? title : `Last known: ${title}`);
  put("said", said);
  show("todo", state === "alarm");
  put("recalibrate", command("/v1/recalibrate", '{"since": "TIME"}'));
  document.title = `${live ? title : "Connection lost"} - trustdoctor`;
  put("promise", `Version ${gate.version} of the gate, on ${gate.score ?? "scores of your own"}: ${gate.promise}. In use since ${minute(gate.since)} UTC.`);
};

/* Commands. Before the first row: how to send one. */
const command = (path, body) => {
  const token = data.tokens ? ' \\\n  -H "Authorization: Bearer $TOKEN"' : "";
  return `curl ${location.origin}${path}${token} \\\n  -H "Content-Type: application/json" \\\n  -d '${body}'`;
};
const example = ({ gate }) => {
  const n = Array.isArray(gate.classes) ? gate.classes.length : gate.classes;
  const row = n === null ? { id: "row-1", confidence: 0.93, predicted: 0 }
    : { id: "row-1", logits: Array.from({ length: Math.min(n, 20) }, (_, i) => (i ? 0 : 4)) };
  return command("/v1/decide", JSON.stringify(row).replace("]}", n > 20 ? ", ...]}" : "]}"));
};

/* How things stand now. */
const minutesOf = ({ time, traffic }) => {
  const known = new Map(traffic.minutes.map((own) => [Date.parse(own.at), own]));
  if (!known.size) return [];
  const last = Math.floor(Date.parse(time) / MINUTE) * MINUTE, out = [];
  const first = Math.max(Math.min(...known.keys()), last - SHOWN * MINUTE);
  for (let at = first; at <= last; at += MINUTE) {
    const { rows = 0, accepted = 0, current_rows: own = rows, current_accepted: kept = accepted } = known.get(at) ?? {};
    out.push({ at, rows, accepted, own, kept });
  }
  return out;
};
const figuresOf = (status, minutes) => {
  const { time, traffic, review, latency } = status;
  const full = minutes[minutes.length - 2] ?? { rows: 0, own: 0, kept: 0 };
  const age = review.oldest && duration((Date.parse(time) - Date.parse(review.oldest)) / 1000);
  const speed = (own) => `${Number(own.toPrecision(3))} ms`;
  return [
    ["Rows per minute", count(full.rows), `in the last full minute; ${counted(traffic.rows, "row")} in all`],
    ["Accepted", share(full.kept, full.own), `in the last full minute, by this gate; ${share(traffic.accepted, traffic.rows)} of all`],
    ["Waiting for review", count(review.waiting), age ? `the oldest for ${age}` : "nothing waits"],
    ["Time to answer", latency.count ? speed(latency.p50_ms) : "-",
      latency.count ? `or less for half of the requests; ${speed(latency.p99_ms)} or less for 99%` : "no request yet"],
  ];
};
const showFigures = (figures) => {
  if (!changed("figures", figures)) return;
  byId("figures").replaceChildren(...figures.map(([name, value, more]) => make("div", {},
    make("dt", {}, name), make("dd", { class: "big" }, value), make("dd", { class: "small" }, more))));
};

/* What is watched. */
const STATES = { alarm: "alarm", "cannot tell": "unsure", "no rows yet": "unsure" };
const card = ({ weak, ...test }) => {
  const { verdict, alarm, words } = test, list = make("dl"), reason = test.why || alarm?.words;
  const say = (term, ...texts) => list.append(make("dt", {}, term), ...texts.map((text) => make("dd", {}, visible(text))));
  if (reason) say("Why", `${sentence(reason)}.`);
  say("Asked", sentence(words.promise));
  if (words.observed.length) say(words.groups ? `Seen now, in the worst of ${counted(words.groups, "group")}` : "Seen now", ...words.observed);
  if (words.evidence) say(alarm ? "How surprising" : "How far from an alarm", sentence(words.evidence));
  const state = verdict === "alarm" ? "ALARM" : weak ? NO_SIGN : sentence(verdict);
  return make("article", { class: `card status ${weak ? "unsure" : STATES[verdict] ?? ""}` }, make("h3", {}, visible(nameOf(test.name))),
    make("p", { class: "state" }, alarm ? `${state} since ${minute(alarm.at)} UTC` : state), list);
};
const standing = ({ tests, history }) => tests.map((test) => ({ ...test, weak: untold(test, history) !== null }));
const showTests = ({ watch }) => {
  const tests = watch ? standing(watch) : [];
  show("watched", tests.length > 0);
  if (changed("cards", tests)) byId("cards").replaceChildren(...tests.map(card));
  const rates = watch?.review;
  put("rates", rates ? `Drawn for review: ${plainPercent(rates.rejected)} of the rejected rows, ${plainPercent(rates.accepted)} of the accepted. ` +
    (watch.waiting ? `${counted(watch.waiting, "drawn row")} ${watch.waiting === 1 ? "has" : "have"} no label yet; ` +
    `until it comes a row counts in the promise's favour.` : "") : "");
};

/* Charts. */
const legend = () => make("p", { class: "small" }, make("span", { class: "key right" }), "accepted",
  make("span", { class: "key rest" }), "rejected; the last minute is not over");
const drawTraffic = (minutes, accepted) => {
  if (!minutes.length) return;
  if (!timeSeries.figures.has("rows")) {
    timeSeries.add(byId("charts"), "rows", "Rows per minute", ["time (UTC)", "rows", "accepted"], [legend()]);
    timeSeries.add(byId("charts"), "share", "Accepted by this gate, minute by minute", ["time (UTC)", "accepted"]);
  }
  const times = minutes.map(({ at }) => at), rows = minutes.map((own) => own.rows);
  timeSeries.plot("rows", { unit: "rows", axis: "rows", bars: true, times, least: MINUTE, limits: [],
    lines: [{ name: "rows", values: rows }, { name: "accepted", values: minutes.map((own) => own.accepted) }],
    range: [0, Math.max(1, ...rows) * 1.05] });
  const line = { name: "accepted", values: minutes.map(({ own: n, kept }) => (n ? kept / n : null)), rows: minutes.map(({ own }) => own) };
  timeSeries.plot("share", { times, least: MINUTE, ...timeSeries.ratesOf([line], accepted) });
};
const drawRate = (id, test, steps, times) => {
  const estimates = steps.map((step) => step.estimates[test.name] ?? null);
  const column = (k) => estimates.map((estimate) => estimate && estimate[k]);
  const line = { name: "estimate", values: column(0), low: column(1), high: column(2), rows: column(3), windows: column(4) };
  timeSeries.plot(id, { times, alarms: alarmsOf(test), ...timeSeries.ratesOf([line], test) });
};
const drawEvidence = (id, test, steps, times) => {
  const logs = steps.map(({ evidence }) => evidence[test.name] ?? null);
  timeSeries.plot(id, { times, alarms: alarmsOf(test), ...timeSeries.evidenceOf(logs, test.limit) });
};
const alarmsOf = ({ alarm }) => (alarm ? [Date.parse(alarm.at)] : []);
let testCharts = [];
const drawTests = ({ watch }) => {
  const steps = watch?.history ?? [], times = steps.map(({ at }) => Date.parse(at));
  const tests = (steps.length ? watch.tests : []).filter(({ verdict }) => verdict !== "cannot tell");
  const hasRate = ({ name }) => steps.some(({ estimates }) => estimates[name]);
  if (changed("test charts", [watch?.version, tests.map((test) => [test.name, hasRate(test)])])) {
    testCharts.forEach(timeSeries.remove);
    testCharts = tests.flatMap((test, i) => {
      const title = visible(nameOf(test.name));
      if (hasRate(test)) timeSeries.add(byId("charts"), `rate-${i}`, title, ["time (UTC)", "estimate"]);
      timeSeries.add(byId("charts"), `evidence-${i}`, `${title}: how surprising it is`, ["time (UTC)", "chance"]);
      return [`rate-${i}`, `evidence-${i}`];
    });
  }
  tests.forEach((test, i) => {
    if (hasRate(test)) drawRate(`rate-${i}`, test, steps, times);
    drawEvidence(`evidence-${i}`, test, steps, times);
  });
};
const showCharts = (status, minutes) => {
  show("s-charts", minutes.length > 0);
  if (!minutes.length) return;
  drawTraffic(minutes, status.watch?.tests.find(({ name }) => name === "accepted"));
  drawTests(status);
};

/* Alarms, rows for review, gates. */
const showAlarms = ({ alarms }) => {
  show("s-alarms", true);
  show("no-alarms", !alarms.length);
  show("some-alarms", alarms.length > 0);
  fillTable("alarms", alarms.map((own) => [minute(own.at), own.version, nameOf(own.test), own.words, own.sent ? minute(own.sent) : "-"]));
};
const showReview = ({ time, review }) => {
  show("s-review", true);
  const { waiting, leased, rejected, audit, oldest, answered, cannot_say: unsaid } = review;
  const age = oldest ? `; the oldest has waited for ${duration((Date.parse(time) - Date.parse(oldest)) / 1000)}, since ${minute(oldest)} UTC` : "";
  const queue = waiting ? `${counted(waiting, "row")} ${waiting === 1 ? "waits" : "wait"}: ${count(rejected)} rejected, ` +
    `${count(audit)} drawn from the accepted${age}.` : "No row waits.";
  const done = answered || unsaid ? `Reviewers have labelled ${counted(answered, "row")} so far, and said "cannot say" of ${count(unsaid)}.` : "None reviewed so far.";
  put("queue", `${queue} ${counted(leased, "row")} ${leased === 1 ? "is" : "are"} with a reviewer now. ${done}`);
};
const risk = (seen) => (seen === null ? "not known, as too few labelled rows were accepted" : band(seen));
const showShadow = ({ gate, shadow }) => {
  show("s-shadow", shadow !== null);
  if (shadow === null) return;
  const { version, rows, both, only_current: current, only_shadow: other, neither, labelled } = shadow;
  put("beside", `Version ${version} decides beside version ${gate.version}; only version ${gate.version} counts. ` +
    `They differ in ${share(current + other, rows)} of ${counted(rows, "row")}.`);
  fillTable("shadow", [["both accept", both], [`only version ${gate.version} accepts`, current], [`only version ${version} accepts`, other],
    ["both reject", neither]].map(([what, n]) => [what, count(n), share(n, rows)]));
  put("beside-risk", labelled ? `Errors among the accepted (risk), on ${counted(labelled.rows, "labelled row")}: ` +
    `version ${gate.version} ${risk(labelled.risk_current)}, version ${version} ${risk(labelled.risk_shadow)}.` : "No labelled rows to compare yet.");
};
const VERSIONS = { current: "decides now", shadow: "in the shadow", candidate: "candidate", earlier: "earlier" };
const ORIGINS = { start: "the start", upload: "an upload", recalibrate: "recalibration" };
const showVersions = ({ versions }) => {
  show("s-versions", versions.length > 0);
  fillTable("versions", versions.map((own) => [own.version, VERSIONS[own.state] ?? own.state, own.promise, count(own.rows),
    minute(own.at), ORIGINS[own.origin] ?? own.origin, own.note ?? ""]));
};
const showService = ({ service: own }) => {
  const fast = own.durable ? "" : " Answers are sent before they are on disk (--fast): after a power cut the last ones may be missing.";
  put("service", `trustdoctor ${own.version}, ${own.store}, replica ${own.replica}, running since ${minute(own.started)} UTC.${fast}`);
};

/* What the service says arrives here, by events or by asking. */
const STRANGE = "The service says what this page cannot read.";
const QUIET = 6000, PAUSE = 3000, REOPEN = 15000, HIDDEN = 30000;
let status = null, heard = -Infinity, asking = false, tried = -Infinity, source = null, opened = -Infinity, lost = null;
const render = (live) => {
  const minutes = minutesOf(status);
  showVerdict(status, live);
  show("empty", status.traffic.rows === 0);
  put("curl", example(status));
  show("now", status.traffic.rows > 0);
  showFigures(figuresOf(status, minutes));
  showTests(status);
  showCharts(status, minutes);
  [showAlarms, showReview, showShadow, showVersions, showService].forEach((part) => part(status));
};
const arrived = (said, how) => {
  status = said;
  heard = performance.now();
  lost = null;
  show("lost", false);
  render(true);
  put("heard", `${how} Heard at ${clock(status.time)}.`);
};
const lose = (why, answers) => {
  lost = lost ?? new Date().toISOString();
  const what = answers ? "No news" : "Connection lost", since = clock(status?.time ?? lost);
  put("lost", `${what} since ${since}. ${why} ${status === null ? "" : "What stands below is from then. "}Trying again.`);
  show("lost", true);
  put("heard", "");
  if (status !== null) showVerdict(status, false);
};
const poll = async () => {
  if (asking || performance.now() - tried < PAUSE) return;
  asking = true;
  tried = performance.now();
  try {
    arrived(await ask("/v1/status"), "Asked every few seconds.");
  } catch (error) {
    lose(error.status === undefined ? STRANGE : trouble(error), error.status !== 0);
  }
  asking = false;
};
const listen = () => {
  source?.close();
  opened = performance.now();
  source = new EventSource("/v1/events");
  source.addEventListener("status", (event) => {
    try {
      arrived(JSON.parse(event.data), "Live.");
    } catch {
      lose(STRANGE, true);
    }
  });
  source.addEventListener("away", () => lose(trouble({ status: 503 }), true));
  source.addEventListener("error", () => poll());
};
const patience = () => {
  if (document.hidden) return HIDDEN;
  return source.readyState === EventSource.OPEN ? QUIET : PAUSE;
};
const tick = () => {
  const now = performance.now();
  if (now - heard > patience()) poll();
  const stuck = source.readyState === EventSource.CLOSED || now - heard > REOPEN;
  if (stuck && !document.hidden && now - opened > REOPEN) listen();
};
listen();
setInterval(tick, 1000);
/* A browser opens six connections to a service: tabs that nobody sees leave them to others. */
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source.close();
  else listen();
});
})();
