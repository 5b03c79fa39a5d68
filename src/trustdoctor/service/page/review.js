(() => {
"use strict";
const { byId, visible, make, put, count, counted, minute } = dom;
const { show, send, ask, trouble } = service;
const SECONDS = 300, AGAIN = 5000, SETTLE = 250, MOST = 50, NUMBERED = 9, SKIPPED = 200;
const state = { row: null, ends: 0, since: 0, busy: false, done: 0, keys: new Map(), working: false, paused: false, warned: false,
  skipped: [], last: null, changing: false };
let timer = null;

/* Above the row: what happened, and what went wrong. */
const tell = (text) => put("told", text);
const complain = (text) => {
  put("trouble", text);
  show("trouble", text !== "");
};
const stages = ["start", "idle", "work"];
const stage = (wanted) => {
  for (const id of stages) show(id, id === wanted);
  show("after", wanted !== "start");
};

/* The payload. Nothing in it is markup; pictures are data, and links open by a click. */
const IMAGE = /^data:image\/(png|jpeg|webp);base64,[A-Za-z0-9+/]+={0,2}$/;
const picture = (url) => {
  if (!IMAGE.test(url)) return make("p", { class: "caution" }, "An image that this page does not show: it takes PNG, JPEG and WebP as data URLs.");
  const out = make("img", { alt: "The picture that came with this row" });
  out.addEventListener("error", () => out.replaceWith(make("p", { class: "caution" }, "The image cannot be read.")));
  out.src = url;
  return out;
};
const link = (text) => {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!["http:", "https:"].includes(url?.protocol)) return make("p", { class: "caution" }, `A link that is not http or https: ${visible(text)}`);
  const out = make("a", { rel: "noopener noreferrer", target: "_blank" }, visible(url.href));
  out.href = url.href;
  return make("p", {}, `Opens ${visible(url.host)} in a new tab: `, out);
};
const showPayload = ({ payload, id }) => {
  const parts = [];
  if (typeof payload?.text === "string") parts.push(make("p", { class: "text", dir: "auto" }, visible(payload.text)));
  if (typeof payload?.image === "string") parts.push(picture(payload.image));
  if (typeof payload?.link === "string") parts.push(link(payload.link));
  if (!parts.length) parts.push(make("p", {}, "This row came without a payload: look it up by its id, ", make("bdi", {}, visible(id)), "."));
  byId("payload").replaceChildren(...parts);
};
const WHY = {
  rejected: "The gate rejected this row",
  audit: "Accepted, and drawn at random to check the gate",
};
const isKnown = (value) => value !== null && value !== undefined && value !== "";
const showFacts = (row) => {
  const facts = [["Id", row.id], ["Decided", `${minute(row.at)} UTC, by version ${row.version}`], ["Doubt", row.doubt],
    ["The model's answer", row.predicted], ["Group", row.group]].filter(([, value]) => isKnown(value));
  byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("bdi", {}, visible(value)))]));
  byId("details").open = false;
};

/* The choices: the shortlist with number keys, then every class, searched where they are many.
   Where the gate or the row knows no classes, whether the answer is right. */
const choice = ([words, given], key) => {
  const out = make("button", { type: "button" }, ...(key ? [make("kbd", {}, key), " "] : []), make("bdi", {}, visible(words)));
  out.addEventListener("click", () => answer(given, words));
  return out;
};
const labelled = (label) => [String(label), { label }];
const judged = ({ predicted }) => {
  const said = isKnown(predicted) ? `The model says ${predicted}, and` : "The answer";
  return [[`${said} is right`, { correct: true }], [`${said} is wrong`, { correct: false }]];
};
const classesOf = ({ classes, predicted }) => {
  if (predicted === "") return null;
  return typeof classes === "number" ? Array.from({ length: classes }, (_, i) => i) : classes ?? null;
};
const listOf = (row) => (row.predicted !== "" && row.shortlist ? row.shortlist : []);
const othersOf = (row) => {
  const listed = new Set(listOf(row).map(String));
  return (classesOf(row) ?? []).filter((label) => !listed.has(String(label)));
};
/* Where every class is a digit, its key is the class itself; otherwise keys are places. */
const areDigits = (row) => classesOf(row)?.every((label) => /^[0-9]$/.test(String(label))) ?? false;
const areFew = (row) => areDigits(row) || (classesOf(row)?.length ?? 0) <= NUMBERED;
const optionsOf = (row) => {
  if (classesOf(row) === null && !listOf(row).length) return judged(row);
  return [...listOf(row), ...(areFew(row) ? othersOf(row) : [])].map(labelled);
};
const keyed = (options, row) => {
  state.keys.clear();
  return options.map((own, i) => {
    const place = i < NUMBERED ? String(i + 1) : "", key = areDigits(row) ? own[0] : place;
    const button = choice(own, key);
    state.keys.set(key, button);
    return button;
  });
};
const showFound = () => {
  const row = current(), wanted = byId("search").value.trim().toLowerCase();
  if (row === null) return;
  const listed = listOf(row).length > 0;
  const every = othersOf(row).filter((label) => String(label).toLowerCase().includes(wanted));
  const first = listed && !wanted ? [] : every.slice(0, MOST).map(labelled);
  byId("found").replaceChildren(...(listed ? first.map((own) => choice(own)) : keyed(first, row)));
  const hidden = every.length - first.length;
  const rest = hidden > 0 ? `${count(hidden)} ${first.length ? "more" : "classes"}: type a few letters.` : "";
  put("more", every.length ? rest : "No class has these letters.");
};
const showChoices = (row) => {
  const search = !areFew(row) && othersOf(row).length > 0;
  byId("choices").replaceChildren(...keyed(optionsOf(row), row));
  byId("search").value = "";
  byId("other").value = "";
  byId("finder-label").firstChild.textContent = listOf(row).length ? "None of these? Find another class " : "Find a class ";
  show("finder", search);
  show("typed", classesOf(row) === null && row.predicted !== "");
  show("zero", !areDigits(row));
  if (search) showFound();
};

/* How long the row is ours, counted from when it was asked for: clocks differ. */
const current = () => (state.changing ? state.last.row : state.row);
const tick = () => {
  if (state.row === null) return;
  const left = Math.ceil((state.ends - performance.now()) / 1000);
  if (state.changing) {
    if (left <= 0) state.row = null;
    return;
  }
  if (left <= 0) {
    pause("The time for this row is over, and it went back to the queue. Go on when you are ready.");
    return;
  }
  const shown = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  byId("left").textContent = `${shown} left; then the row goes back to the queue.`;
  if (left <= 60 && !state.warned) {
    state.warned = true;
    tell("One minute left for this row.");
  }
};
const idle = (words, button) => {
  state.row = null;
  stage("idle");
  put("nothing", words);
  for (const id of ["go", "again"]) show(id, id === button);
};
const pause = (words) => {
  state.paused = true;
  complain("");
  idle(words, "go");
  byId("go").focus();
};

/* The next row. */
const present = (row, why) => {
  state.since = performance.now();
  put("why", why);
  put("skip-words", state.changing ? "Leave it as it is" : "Skip: give it back");
  showPayload(row);
  showFacts(row);
  showChoices(row);
  stage("work");
  show("change", state.last !== null && !state.changing);
  tick();
  byId("why").focus({ preventScroll: true });
  scrollTo(0, 0);
};
const showRow = (row, ends) => {
  Object.assign(state, { row, ends, warned: false });
  present(row, WHY[row.kind] ?? "A row to review");
};
const wait = (words, button) => {
  idle(words, button);
  show("change", state.last !== null);
  clearTimeout(timer);
  timer = setTimeout(next, AGAIN);
};
const rest = (waiting) => {
  const { length } = state.skipped, looks = "This page looks again every few seconds.";
  if (!length || !waiting) return wait(`Nothing to review now. ${looks}`);
  const others = waiting > length ? ", and rows that others have now" : "";
  return wait(`Only rows that you skipped are left${others}. ${looks}`, "again");
};
const next = async () => {
  clearTimeout(timer);
  if (!state.working || state.paused || state.busy || state.changing || document.hidden) return;
  state.busy = true;
  const asked = performance.now();
  try {
    const said = await ask("/v1/review/lease", { reviewer: byId("reviewer").value.trim(), order: byId("order").value,
      count: 1, seconds: SECONDS, skip: state.skipped });
    const [row] = said.rows;
    complain("");
    if (!state.working) leave(row);
    else if (row === undefined) rest(said.waiting);
    else showRow(row, asked + 1000 * SECONDS);
  } catch (error) {
    complain(`${trouble(error)} Trying again.`);
    wait("No row could be fetched.");
  }
  state.busy = false;
};

/* An answer. */
const taken = (row, given, words, result) => {
  complain("");
  if (given.release) state.skipped = [...state.skipped, row.id].slice(-SKIPPED);
  else Object.assign(state, { done: state.done + 1, last: { row, words } });
  const late = result === "kept" ? " It came too late for the watch, which does not count it." : "";
  tell(`${given.release ? "Given back." : `Stored: ${words}.${late}`} ${counted(state.done, "row")} answered.`);
};
const answer = async (given, words) => {
  const { row } = state;
  if (state.changing) return correct(given, words);
  if (row === null || state.busy) return;
  state.busy = true;
  let gone = true;
  try {
    const { result } = await ask("/v1/review/answer", { id: row.id, lease: row.lease, ...given });
    taken(row, given, words, result);
  } catch (error) {
    gone = error.status === 409;
    if (gone) tell(`Not stored: the row is no longer yours. It was answered by somebody else, or your time was over. ${counted(state.done, "row")} answered.`);
    else complain(`${trouble(error)} ${error.status ? "Your answer was not stored" : "It is not known whether your answer was stored"}: give it again.`);
  }
  state.busy = false;
  if (!gone) return;
  state.row = null;
  if (!document.hidden) next();
  else wait("");
};

/* Another answer to the last row; meanwhile the row that is ours stays so. */
const change = () => {
  if (state.last === null || state.busy || state.changing) return;
  clearTimeout(timer);
  state.changing = true;
  complain("");
  const { row, words } = state.last;
  present(row, `You said ${words} of row ${row.id}`);
  put("left", "Give another answer. Both stay in the history: the watch keeps the first, recalibration takes the new one.");
};
const back = () => {
  state.changing = false;
  if (state.row !== null) showRow(state.row, state.ends);
  else if (state.paused) pause("Go on when you are ready.");
  else next();
};
const correct = async (given, words) => {
  if (state.busy) return;
  state.busy = true;
  const { row } = state.last;
  let done = false;
  try {
    const { rows: [{ result, why }] } = await ask("/v1/labels", { id: row.id, ...given });
    done = result !== "refused";
    complain(done ? "" : `Your new answer was refused: ${why ?? ""}`);
  } catch (error) {
    complain(`${trouble(error)} ${error.status ? "Your new answer was not stored" : "It is not known whether your new answer was stored"}: give it again.`);
  }
  state.busy = false;
  if (!done) return;
  state.last.words = words;
  tell(`Changed: row ${row.id} is now ${words}. ${counted(state.done, "row")} answered.`);
  back();
};
const skip = () => {
  if (!state.changing) answer({ release: true });
  else if (!state.busy) back();
};
const unsure = () => answer({ cannot_say: true }, "cannot say");
/* Whoever leaves gives the row back. */
const leave = (row = state.row) => {
  state.row = null;
  if (!row) return;
  const given = { id: row.id, lease: row.lease, release: true };
  send("/v1/review/answer", given, { keepalive: true }).catch(() => {});
};
const stop = () => {
  clearTimeout(timer);
  leave();
  Object.assign(state, { working: false, paused: false, changing: false });
  complain("");
  stage("start");
  byId("reviewer").focus();
};

/* Keys. A key held down, or pressed as the row changes, is not an answer. */
const press = (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !byId("keys").checked) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const { key } = event, isReady = performance.now() - state.since >= SETTLE;
  if (key === "b" && isReady && !byId("after").hidden) change();
  if (byId("work").hidden || current() === null) return;
  const field = [["finder", "search"], ["typed", "other"]].find(([box]) => !byId(box).hidden);
  if (key === "/" && field) {
    event.preventDefault();
    byId(field[1]).focus();
  }
  if (!isReady) return;
  if (/^[0-9]$/.test(key) && state.keys.has(key)) state.keys.get(key).click();
  else if (key === "u" || (key === "0" && !byId("zero").hidden)) unsure();
  else if (key === "s") skip();
};
const searchKey = (event) => {
  if (event.key === "Escape") byId("why").focus();
  if (event.key !== "Enter") return;
  event.preventDefault();
  const found = byId("found").querySelectorAll("button");
  if (found.length === 1) found[0].click();
  else found[0]?.focus();
};

byId("start").addEventListener("submit", (event) => {
  event.preventDefault();
  state.working = true;
  stage("idle");
  put("nothing", "Asking for a row.");
  next();
});
byId("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("other").value.trim();
  if (text) answer({ label: /^\d+$/.test(text) ? Number(text) : text }, text);
});
byId("search").addEventListener("input", showFound);
byId("search").addEventListener("keydown", searchKey);
byId("other").addEventListener("keydown", (event) => { if (event.key === "Escape") byId("why").focus(); });
byId("unsure").addEventListener("click", unsure);
byId("skip").addEventListener("click", skip);
byId("go").addEventListener("click", () => {
  state.paused = false;
  next();
});
byId("again").addEventListener("click", () => {
  state.skipped = [];
  next();
});
byId("change").addEventListener("click", change);
byId("stop").addEventListener("click", stop);
document.addEventListener("keydown", press);
document.addEventListener("visibilitychange", () => { if (state.row === null) next(); });
addEventListener("pagehide", () => leave());
addEventListener("pageshow", (event) => { if (event.persisted && state.working) next(); });
setInterval(tick, 500);
})();
