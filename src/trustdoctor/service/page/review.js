(() => {
"use strict";
const { byId, count } = charts;
const { visible, many, make, put, show, when, sent, ask, trouble } = service;
const SECONDS = 300, AGAIN = 5000, SETTLE = 250, MOST = 50, NUMBERED = 9;
const state = { row: null, ends: 0, since: 0, busy: false, done: 0, buttons: [], working: false, paused: false, warned: false };
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
const showPayload = (payload) => {
  const parts = [];
  if (typeof payload?.text === "string") parts.push(make("p", { class: "text", dir: "auto" }, visible(payload.text)));
  if (typeof payload?.image === "string") parts.push(picture(payload.image));
  if (typeof payload?.link === "string") parts.push(link(payload.link));
  if (!parts.length) parts.push(make("p", {}, "This row came without a payload: look it up by its id, below."));
  byId("payload").replaceChildren(...parts);
};
const WHY = {
  rejected: "The gate rejected this row",
  audit: "Accepted, and drawn at random to check the gate",
};
const showFacts = (row) => {
  const facts = [["Id", row.id], ["Decided", `${when(row.at)} UTC, by version ${row.version}`], ["Doubt", row.doubt],
    ["The model's answer", row.predicted], ["Group", row.group]].filter(([, value]) => value !== null && value !== undefined);
  byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("bdi", {}, visible(value)))]));
  byId("details").open = !row.payload;
};

/* The choices: the shortlist with number keys, then every class, searched where they are many.
   Where the gate knows no classes, whether the model is right. */
const choice = ([words, given], number) => {
  const out = make("button", { type: "button" }, ...(number ? [make("kbd", {}, String(number)), " "] : []), make("bdi", {}, visible(words)));
  out.addEventListener("click", () => answer(given, words));
  return out;
};
const labelled = (label) => [String(label), { label }];
const judged = ({ predicted }) => {
  const said = predicted === null || predicted === undefined ? "The model" : `The model says ${predicted}, and`;
  return [[`${said} is right`, { correct: true }], [`${said} is wrong`, { correct: false }]];
};
const classesOf = ({ classes }) => (typeof classes === "number" ? Array.from({ length: classes }, (_, i) => i) : classes ?? null);
const optionsOf = (row, every, listed) => {
  if (listed) return listed.map(labelled);
  if (every === null) return judged(row);
  return every.length <= NUMBERED ? every.map(labelled) : [];
};
const numbered = (options) => {
  state.buttons = options.slice(0, NUMBERED).map((own, i) => choice(own, i + 1));
  return [...state.buttons, ...options.slice(NUMBERED).map((own) => choice(own))];
};
const showFound = () => {
  const { row } = state, wanted = byId("search").value.trim().toLowerCase(), listed = row?.shortlist?.length;
  if (row === null) return;
  const every = classesOf(row).filter((label) => String(label).toLowerCase().includes(wanted));
  const first = listed && !wanted ? [] : every.slice(0, MOST).map(labelled);
  byId("found").replaceChildren(...(listed ? first.map((own) => choice(own)) : numbered(first)));
  const hidden = every.length - first.length;
  const rest = hidden > 0 ? `${count(hidden)} ${first.length ? "more" : "classes"}: type a few letters.` : "";
  put("more", every.length ? rest : "No class has these letters.");
};
const showChoices = (row) => {
  const every = classesOf(row), listed = row.shortlist?.length ? row.shortlist : null;
  const search = every !== null && every.length > (listed ? listed.length : NUMBERED);
  byId("choices").replaceChildren(...numbered(optionsOf(row, every, listed)));
  byId("search").value = "";
  byId("other").value = "";
  byId("finder-label").firstChild.textContent = listed ? "None of these? Find another class " : "Find a class ";
  show("finder", search);
  show("typed", every === null);
  if (search) showFound();
};

/* How long the row is ours, counted from when it was asked for: clocks differ. */
const tick = () => {
  if (state.row === null) return;
  const left = Math.ceil((state.ends - performance.now()) / 1000);
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
const pause = (words) => {
  state.row = null;
  state.paused = true;
  complain("");
  stage("idle");
  put("nothing", words);
  show("go", true);
  byId("go").focus();
};

/* The next row. */
const showRow = (row, ends) => {
  Object.assign(state, { row, ends, since: performance.now(), warned: false });
  put("why", WHY[row.kind] ?? "A row to review");
  showPayload(row.payload);
  showFacts(row);
  showChoices(row);
  stage("work");
  tick();
  byId("why").focus({ preventScroll: true });
  scrollTo(0, 0);
};
const wait = (words) => {
  state.row = null;
  stage("idle");
  put("nothing", words);
  show("go", false);
  clearTimeout(timer);
  timer = setTimeout(next, AGAIN);
};
const next = async () => {
  clearTimeout(timer);
  if (!state.working || state.paused || state.busy || document.hidden) return;
  state.busy = true;
  const asked = performance.now();
  try {
    const said = await ask("/v1/review/lease", { reviewer: byId("reviewer").value.trim(), order: byId("order").value, count: 1, seconds: SECONDS });
    const [row] = said.rows;
    complain("");
    if (!state.working) leave(row);
    else if (row === undefined) wait("Nothing to review now. This page looks again every few seconds.");
    else showRow(row, asked + 1000 * SECONDS);
  } catch (error) {
    complain(`${trouble(error)} Trying again.`);
    wait("No row could be fetched.");
  }
  state.busy = false;
};

/* An answer. */
const answer = async (given, words) => {
  const { row } = state;
  if (row === null || state.busy) return;
  state.busy = true;
  let gone = true;
  try {
    await ask("/v1/review/answer", { id: row.id, lease: row.lease, ...given });
    state.done += given.release ? 0 : 1;
    complain("");
    tell(`${given.release ? "Given back." : `Stored: ${words}.`} ${many(state.done, "row")} answered.`);
  } catch (error) {
    gone = error.status === 409;
    if (gone) tell(`Not stored: the row is no longer yours. It was answered by somebody else, or your time was over. ${many(state.done, "row")} answered.`);
    else complain(`${trouble(error)} ${error.status ? "Your answer was not stored" : "It is not known whether your answer was stored"}: give it again.`);
  }
  state.busy = false;
  if (!gone) return;
  state.row = null;
  if (!document.hidden) next();
  else wait("");
};
const skip = () => answer({ release: true });
const unsure = () => answer({ cannot_say: true }, "cannot say");
/* Whoever leaves gives the row back. */
const leave = (row = state.row) => {
  state.row = null;
  if (!row) return;
  const given = { id: row.id, lease: row.lease, release: true };
  sent("/v1/review/answer", given, { keepalive: true }).catch(() => {});
};
const stop = () => {
  clearTimeout(timer);
  leave();
  Object.assign(state, { working: false, paused: false });
  complain("");
  stage("start");
  byId("reviewer").focus();
};

/* Keys. A key held down, or pressed as the row changes, is not an answer. */
const press = (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || !byId("keys").checked) return;
  if (state.row === null || event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const { key } = event;
  const field = [["finder", "search"], ["typed", "other"]].find(([box]) => !byId(box).hidden);
  if (key === "/" && field) {
    event.preventDefault();
    byId(field[1]).focus();
  }
  if (performance.now() - state.since < SETTLE) return;
  if (/^[1-9]$/.test(key)) state.buttons[key - 1]?.click();
  else if (key === "0" || key === "u") unsure();
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
byId("stop").addEventListener("click", stop);
document.addEventListener("keydown", press);
document.addEventListener("visibilitychange", () => { if (state.row === null) next(); });
addEventListener("pagehide", () => leave());
addEventListener("pageshow", (event) => { if (event.persisted && state.working) next(); });
setInterval(tick, 500);
})();
