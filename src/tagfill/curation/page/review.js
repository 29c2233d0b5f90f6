// The review page: one class at a time in a grid, or one image with all its suggested labels. At most one page of
// suggestions is in the document, so it stays small. An audit asks one question at a time, and shows no score.

import {
  $, GUARD, MARKS, MAX_SECONDS, TagSearch, VALUES, WORDS, doubt, drawTags, get, listRefused, loading, note, pause, question,
  showPicture, showProgress, showSaved as showSavedState, verdictOf,
} from "/page.js";
import { Queue, newId } from "/queue.js";

const PAGE_SIZE = 24;

const state = {
  session: null, mode: "grid", label: null, kind: "missing", items: [], cursor: 0, before: [], after: -1, left: 0, total: 0,
  undo: JSON.parse(sessionStorage.getItem("tagfill-undo") ?? "[]"), since: performance.now(), pace: [], newest: 0,
  heat: false, loading: 0, tags: [], asked: undefined,
};
let queue;

const isAudit = () => state.session.task === "audit";
const samePair = (one, other) => one.image === other.image && one.label === other.label;

// -- showing suggestions ---------------------------------------------------------------------------------------------

function query(after, limit = PAGE_SIZE) {
  const parameters = new URLSearchParams({ after, limit, minimum: $("minimum").value || 0, text: $("text").value });
  if (state.mode === "grid" && state.label) parameters.set("label", state.label);
  if (state.mode === "grid") parameters.set("kind", state.kind);
  parameters.set("state", $("decided").checked ? "all" : "open");
  return `/api/suggestions?${parameters}`;
}

async function load(after, remember = true) {
  const request = ++state.loading;
  document.body.classList.add("loading"); // keys do nothing until the new suggestions are shown
  try {
    const answer = await get(query(after, state.mode === "grid" ? PAGE_SIZE : 1));
    if (request !== state.loading) return; // a newer request is under way
    if (remember && !answer.items.length && nextClass()) return;
    if (remember && state.items.length) state.before.push(state.after);
    state.after = after;
    state.left = answer.left;
    state.total = answer.total;
    if (state.mode === "single" && answer.items.length) {
      const [first] = answer.items;
      const shown = await get(`/api/image/${first.place}`);
      if (request !== state.loading) return;
      state.items = shown.items;
      state.tags = shown.tags;
      state.next = first.place;
    } else {
      state.items = answer.items;
      state.next = state.items.at(-1)?.place ?? after;
    }
    state.cursor = Math.max(0, state.items.findIndex((item) => item.decision === null));
    state.since = performance.now();
    draw();
    if (state.left > state.items.length) prefetch();
    const asked = state.mode === "grid" ? `${state.kind} ${state.label}` : `${state.items[0]?.place}`;
    const changed = state.asked !== undefined && state.asked !== asked;
    state.asked = asked;
    if (changed) await pause(GUARD);
  } catch (error) {
    note(error.message);
  } finally {
    if (request === state.loading) document.body.classList.remove("loading");
  }
}

// Continue with the next class that has open suggestions.
function nextClass() {
  const { labels } = state.session;
  const here = $("label").selectedIndex;
  const order = labels.map((_, step) => (here + 1 + step) % labels.length);
  const next = order.find((number) => number !== here && labels[number].decided < labels[number].total);
  if (state.mode !== "grid" || next === undefined) return false;
  note(`${state.label} is done. Next: ${labels[next].label}.`);
  choose(next);
  return true;
}

async function prefetch() {
  const [limit, side] = state.mode === "grid" ? [PAGE_SIZE, 320] : [1, 1280];
  const { items } = await get(query(state.next, limit)).catch(() => ({ items: [] }));
  for (const item of items) new Image().src = `/picture/${item.row}?side=${side}`;
}

function draw() {
  document.body.classList.toggle("single", state.mode === "single");
  const tiles = state.items.map((item, position) => {
    const tile = document.createElement("li");
    tile.className = "tile";
    tile.id = `tile-${position}`;
    tile.setAttribute("role", "option");
    tile.dataset.position = position;
    tile.innerHTML = '<img alt="" loading="eager" decoding="async"><span class="mark"></span><span class="words">' +
      '<span></span><span class="score"></span></span>';
    if (state.mode === "grid") tile.firstChild.src = `/picture/${item.row}?side=320`;
    const [name, score] = tile.querySelector(".words").children;
    name.textContent = state.mode === "grid" ? item.image.split("/").at(-1) : labelText(item);
    score.textContent = isAudit() ? "" : item.probability.toFixed(2);
    return tile;
  });
  $("tiles").replaceChildren(...tiles);
  $("large").hidden = state.mode !== "single" || !state.items.length;
  $("photo").hidden = $("large").hidden || isAudit();
  if (!$("large").hidden) $("large").lastElementChild.textContent = state.items[0].image;
  const done = !state.items.length;
  $("empty").hidden = !done;
  $("empty").textContent = state.session.labels.length
    ? isAudit() ? "All questions are answered. End the audit with Ctrl-C in the terminal to see the result."
      : "There is nothing left to decide here. Choose another class or lower the minimum score."
    : "There are no suggestions in this file.";
  state.items.forEach((_, position) => mark(position));
  ask();
  move(state.cursor);
  count();
}

const labelText = (item) => (item.kind === "wrong" ? doubt(item) : item.label);

function ask() {
  const item = state.items[state.cursor];
  const before = item?.kind === "wrong" ? `${doubt(item)[0].toUpperCase()}${doubt(item).slice(1)}. ` : "";
  $("question").textContent = item ? before + question(item.label) : "";
}

// The tags of the photo: what is known without this page, and what was decided on it.
function showTags() {
  if (state.mode !== "single") return;
  const now = state.tags.map((tag) => state.items.find((item) => samePair(item, tag)) ?? tag);
  const has = (tag, known) => (tag.decision === null ? known.state === "present" : tag.decision.present === true);
  drawTags($("tags"), now.filter((tag, at) => has(tag, state.tags[at])), (tag) => decideTag(tag, "absent"));
}

function decideTag(tag, verdict) {
  const position = state.items.indexOf(tag);
  if (position < 0) return save(tag, verdict);
  move(position);
  decide(verdict);
}

function addTag(name) {
  const listed = state.items.find((item) => item.label === name);
  decideTag(listed ?? state.tags.find((tag) => tag.label === name), "present");
}

function mark(position) {
  const item = state.items[position];
  const tile = $(`tile-${position}`);
  if (!tile) return;
  const verdict = verdictOf(item);
  tile.classList.remove("present", "absent", "doubt");
  if (verdict) tile.classList.add(verdict);
  tile.classList.toggle("unsaved", queue.has(item));
  const reason = queue.reason(item);
  tile.classList.toggle("refused", reason !== undefined);
  tile.title = reason === undefined ? item.image : `${item.image}: not saved. ${reason}`;
  tile.querySelector(".mark").textContent = verdict ? MARKS[verdict] : "";
  const spoken = reason !== undefined ? `your decision was not saved. ${reason}` : verdict ? WORDS[verdict] : isAudit() ? "open" : `score ${item.probability.toFixed(2)}`;
  tile.setAttribute("aria-label", `${item.label}, ${item.image}: ${spoken}`);
}

function move(to) {
  if (!state.items.length) return;
  const old = $(`tile-${state.cursor}`);
  old?.classList.remove("current");
  old?.removeAttribute("aria-selected");
  if (old && to !== state.cursor) hideHeatmap(state.cursor);
  state.cursor = Math.min(Math.max(to, 0), state.items.length - 1);
  const tile = $(`tile-${state.cursor}`);
  tile.classList.add("current");
  tile.setAttribute("aria-selected", "true");
  tile.scrollIntoView({ block: "nearest" });
  $("tiles").setAttribute("aria-activedescendant", tile.id);
  if (state.heat || state.mode === "single") show(state.cursor, state.heat);
  ask();
  showTags();
}

function show(position, heat) {
  const item = state.items[position];
  const image = state.mode === "grid" ? $(`tile-${position}`)?.firstChild : $("large").firstElementChild;
  if (!image || !item) return;
  const side = state.mode === "grid" ? 320 : 1280;
  const source = heat && state.session.heatmaps ? `/heatmap/${item.row}/${item.class}` : `/picture/${item.row}`;
  showPicture(image, image.parentElement, `${source}?side=${side}`);
  if (state.mode === "single") image.alt = item.image;
}

const hideHeatmap = (position) => {
  if (state.mode === "grid") show(position, false);
};

function count() {
  const { labels } = state.session;
  const total = labels.reduce((sum, one) => sum + one.total, 0);
  const decided = labels.reduce((sum, one) => sum + one.decided, 0);
  showProgress(decided, total, state.pace, "decided");
  $("where").textContent = `${state.left.toLocaleString()} remaining`;
  for (const option of $("label").options) {
    const one = labels[option.dataset.number];
    const left = one.total - one.decided;
    const text = `${one.label}${one.kind === "wrong" ? " (check)" : ""} · ${left.toLocaleString()} left`;
    if (option.textContent !== text) option.textContent = text;
  }
}

// -- deciding --------------------------------------------------------------------------------------------------------

function decide(verdict) {
  const item = state.items[state.cursor];
  if (!item || loading()) return;
  if (item.decision === null) tally(item, 1);
  state.pace.push(performance.now());
  save(item, verdict);
  mark(state.cursor);
  count();
  advance();
}

// Send a decision about a suggestion, or about another tag of the photo.
function save(item, verdict) {
  const now = performance.now();
  const seconds = Math.min(MAX_SECONDS, (now - state.since) / 1000);
  state.since = now;
  const id = newId();
  const own = { place: item.place, image: item.image, label: item.label, present: VALUES[verdict], id };
  item.decision = { id, present: own.present, who: $("who").value };
  remember(id);
  queue.add("/api/decisions", { ...own, seconds, seen: item.number, who: $("who").value });
  showTags();
  $("said").textContent = `${item.label}: ${WORDS[verdict]}`;
}

function advance() {
  const open = (item) => item.decision === null;
  const later = state.items.findIndex((item, position) => position > state.cursor && open(item));
  const any = later >= 0 ? later : state.items.findIndex((item, position) => position !== state.cursor && open(item));
  if (any >= 0 && !(state.mode === "grid" && later < 0)) move(any);
  else if (later < 0 && state.cursor < state.items.length - 1) move(state.cursor + 1);
  else turnPage(1);
}

function turnPage(by) {
  if (loading()) return;
  if (by > 0) load(state.next);
  else if (state.before.length) load(state.before.pop(), false);
}

function undo() {
  const id = state.undo.pop();
  if (!id) return note("You have no decision to undo.");
  sessionStorage.setItem("tagfill-undo", JSON.stringify(state.undo));
  if (queue.withdraw(id)) return note("The decision that was not saved is discarded.");
  const position = state.items.findIndex((item) => item.decision?.id === id);
  const item = state.items[position];
  const tag = item ?? state.tags.find((one) => one.decision?.id === id);
  const pair = tag && { image: tag.image, label: tag.label };
  queue.add("/api/undo", { id: newId(), undoes: id, who: $("who").value, pair });
  if (tag && !item) {
    tag.decision = null;
    showTags();
  }
  if (item) {
    item.decision = null;
    tally(item, -1);
    mark(position);
    move(position);
    count();
  }
  $("said").textContent = "undone";
}

function remember(id) {
  state.undo = [...state.undo.slice(-199), id];
  sessionStorage.setItem("tagfill-undo", JSON.stringify(state.undo));
}

function forgetUndo(id) {
  state.undo = state.undo.filter((other) => other !== id);
  sessionStorage.setItem("tagfill-undo", JSON.stringify(state.undo));
}

function tally(item, by) {
  const one = state.session.labels.find(({ label, kind }) => label === item.label && kind === item.kind);
  if (one) one.decided += by;
}

// Show the state of suggestions that the server sent: confirmed decisions, and those of other reviewers.
function update(statuses, newest) {
  for (const now of statuses) {
    const tag = state.tags.find((one) => samePair(one, now));
    if (tag) {
      tag.number = now.number;
      if (!queue.has(now)) tag.decision = now.decision;
    }
    const position = state.items.findIndex((item) => samePair(item, now));
    if (position < 0) continue;
    const item = state.items[position];
    item.number = now.number;
    if (queue.has(now)) continue; // a decision made here is not confirmed yet
    const was = item.decision !== null;
    item.decision = now.decision;
    if (was !== (now.decision !== null)) tally(item, was ? -1 : 1);
    mark(position);
    if (now.refused && queue.reason(now) === undefined) note(now.refused); // another reviewer decided the same
  }
  state.newest = Math.max(state.newest, newest ?? 0);
  showTags();
  count();
}

function showSaved(problem, refusal) {
  showSavedState(queue, problem);
  if (refusal) note(`${refusal.reason} Your decision was not saved.`);
  if (!queue.waiting.length) state.items.forEach((_, position) => mark(position));
}

async function poll() {
  if (document.hidden) return;
  try {
    const { newest, statuses } = await get(`/api/changes?since=${state.newest}`);
    const known = state.newest;
    update(statuses, newest);
    if (newest > known) state.session.labels = (await get("/api/session")).labels;
    count();
  } catch {
    // the queue reports unsaved decisions
  }
}

// -- bulk decisions ---------------------------------------------------------------------------------------------------

// What the dialog shows is what is accepted: the server gets this selection, and refuses it if other suggestions match.
let selection = null;

async function preview() {
  const request = (preview.request = (preview.request ?? 0) + 1);
  selection = null;
  $("many-yes").disabled = true;
  $("many-count").textContent = "–";
  const field = $("many-minimum");
  if (field.value === "" || !field.validity.valid) return;
  const filter = { label: state.label, kind: state.kind, minimum: field.valueAsNumber, text: $("text").value };
  const shown = await get(`/api/bulk?${new URLSearchParams(filter)}`).catch((error) => note(error.message));
  if (request !== preview.request || !shown) return; // the filter has changed since, or the server did not respond
  selection = { ...filter, ...shown };
  $("many-count").textContent = shown.count.toLocaleString();
  $("many-yes").disabled = !shown.count;
}

function openBulkDialog() {
  if (isAudit()) return note("An audit is decided one question at a time.");
  if (state.mode !== "grid" || !state.label) return note("Choose a class first.");
  $("many-label").textContent = state.label;
  $("many-verdict").textContent = state.kind === "missing" ? "present" : "present, as scored";
  preview();
  $("many").returnValue = ""; // Escape keeps the value of the last time
  $("many").showModal();
}

async function decideBulk() {
  if (!selection) return;
  const id = newId();
  remember(id);
  queue.add("/api/bulk", { id, ...selection, present: true, who: $("who").value });
  state.since = performance.now();
  const finished = setInterval(async () => {
    if (queue.waiting.length) return;
    clearInterval(finished);
    state.session = await get("/api/session");
    load(-1, false);
  }, 100);
}

// -- starting ---------------------------------------------------------------------------------------------------------

function choose(number) {
  const one = state.session.labels[number];
  if (!one) return;
  state.label = one.label;
  state.kind = one.kind;
  $("label").selectedIndex = number;
  reload();
}

function reload() {
  state.before = [];
  state.items = [];
  const parameters = new URLSearchParams({ label: state.label ?? "", kind: state.kind, mode: state.mode });
  history.replaceState(null, "", `#${parameters}`);
  load(-1, false);
}

function setMode(name) {
  if (isAudit()) return;
  state.mode = name;
  $("grid").setAttribute("aria-pressed", name === "grid");
  $("single").setAttribute("aria-pressed", name === "single");
  reload();
}

const columns = () =>
  state.mode === "single" ? 1 : getComputedStyle($("tiles")).gridTemplateColumns.split(" ").length;
const changeClass = (by) => choose(Math.min(Math.max($("label").selectedIndex + by, 0), state.session.labels.length - 1));
const toggleHeatmap = () => {
  state.heat = !state.heat;
  if (!state.session.heatmaps) return note("Start the review with --run to see heatmaps.");
  show(state.cursor, state.heat);
};

function setWhole(whole) {
  document.body.classList.toggle("whole", whole);
  $("whole").setAttribute("aria-pressed", whole);
  localStorage.setItem("tagfill-whole", whole ? "yes" : "");
}
const toggleWhole = () => setWhole(!document.body.classList.contains("whole"));
const focusSearch = () => ($("photo").hidden ? note("Press V for one image; there you can add tags.") : $("search").focus());

const ACTS = {
  present: () => decide("present"), absent: () => decide("absent"), doubt: () => decide("doubt"), skip: advance, undo,
  on: () => turnPage(1), back: () => turnPage(-1),
};
const KEYS = {
  p: ACTS.present, Enter: ACTS.present, a: ACTS.absent, Backspace: ACTS.absent, c: ACTS.doubt, s: advance, " ": advance,
  u: undo, ArrowLeft: () => move(state.cursor - 1), ArrowRight: () => move(state.cursor + 1),
  ArrowUp: () => move(state.cursor - columns()), ArrowDown: () => move(state.cursor + columns()),
  PageDown: ACTS.on, PageUp: ACTS.back, "[": () => changeClass(-1), "]": () => changeClass(1), h: toggleHeatmap, b: openBulkDialog,
  v: () => setMode(state.mode === "grid" ? "single" : "grid"), w: toggleWhole, t: focusSearch, "/": () => $("text").focus(), "?": () => $("keys").showModal(),
};

function onKey(event) {
  const typing = event.target.matches("input:not([type=checkbox]), select");
  if (event.key === "Escape" && typing) return $("tiles").focus();
  if (typing || document.querySelector("dialog[open]") || event.altKey || event.metaKey) return;
  if (event.ctrlKey) {
    if (event.key !== "z") return;
    event.preventDefault();
    return undo();
  }
  if (event.target.matches("button") && ["Enter", " "].includes(event.key)) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  state.session = await get("/api/session");
  state.newest = state.session.newest;
  document.title = `Tagfill review: ${state.session.dataset}`;
  $("dataset").textContent = state.session.dataset;
  $("who").value = localStorage.getItem("tagfill-who") ?? state.session.reviewer;
  queue = new Queue(state.session.dataset, update, showSaved, forgetUndo);
  showSaved(null);
  listRefused(queue);
  $("label").replaceChildren(...state.session.labels.map((one, number) => {
    const option = document.createElement("option");
    option.dataset.number = number;
    return option;
  }));
  const wanted = new URLSearchParams(location.hash.slice(1));
  const number = state.session.labels.findIndex(
    ({ label, kind }) => label === wanted.get("label") && kind === wanted.get("kind"));
  document.addEventListener("keydown", onKey);
  document.querySelector("footer").addEventListener("click", (event) => {
    const act = event.target.closest("[data-act]")?.dataset.act;
    if (act) ACTS[act]();
  });
  const at = (event) => event.target.closest(".tile")?.dataset.position;
  $("tiles").addEventListener("click", (event) => at(event) !== undefined && move(Number(at(event))));
  $("tiles").addEventListener("dblclick", (event) => at(event) !== undefined && decide("present"));
  $("tiles").addEventListener("mouseover", (event) => hover(at(event)));
  $("tiles").addEventListener("mouseleave", () => hover(undefined));
  $("label").addEventListener("change", () => choose($("label").selectedIndex));
  for (const id of ["minimum", "decided"]) $(id).addEventListener("change", reload);
  $("text").addEventListener("input", () => {
    clearTimeout(start.typing);
    start.typing = setTimeout(reload, 250);
  });
  $("who").addEventListener("change", () => localStorage.setItem("tagfill-who", $("who").value));
  $("grid").addEventListener("click", () => setMode("grid"));
  $("single").addEventListener("click", () => setMode("single"));
  $("bulk").addEventListener("click", openBulkDialog);
  $("whole").addEventListener("click", toggleWhole);
  setWhole(Boolean(localStorage.getItem("tagfill-whole")));
  new TagSearch($("search"), $("matches"), state.session.classes, addTag, () => $("tiles").focus());
  document.body.classList.toggle("audit", isAudit());
  $("help").addEventListener("click", () => $("keys").showModal());
  $("many-minimum").addEventListener("input", preview);
  $("many").addEventListener("close", () => $("many").returnValue === "yes" && decideBulk());
  document.addEventListener("visibilitychange", () => (state.since = performance.now()));
  setInterval(poll, 2000);
  state.mode = isAudit() || wanted.get("mode") === "single" ? "single" : "grid";
  $("grid").setAttribute("aria-pressed", state.mode === "grid");
  $("single").setAttribute("aria-pressed", state.mode === "single");
  if (state.session.labels.length) choose(Math.max(0, number));
  else draw();
  $("tiles").focus();
}

let hovered;
function hover(position) {
  if (hovered !== undefined && hovered !== position) hideHeatmap(hovered);
  hovered = position;
  if (position === undefined || !state.session.heatmaps) return;
  clearTimeout(hover.timer);
  hover.timer = setTimeout(() => hovered === position && show(position, true), 120);
}

start().catch((error) => note(error.message));
