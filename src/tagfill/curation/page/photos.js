// The page that asks for all tags of a photo, one photo at a time. Finishing a photo makes every other class absent.

import {
  $, GUARD, MARKS, MAX_SECONDS, TagSearch, VALUES, WORDS, drawTags, get, listRefused, loading, note, pause, showPicture, showProgress,
  showSaved, verdictOf,
} from "/page.js";
import { Queue, newId } from "/queue.js";

const LISTED = 12; // likely tags beside the photo

const state = {
  session: null, photos: [], at: -1, photo: null, listed: [], cursor: 0, since: performance.now(), finished: [], newest: 0,
  heat: false, undo: JSON.parse(sessionStorage.getItem("tagfill-undo-photos") ?? "[]"),
};
let queue, search;

const stateOf = (tag) => (tag.decision === null ? tag.implied : WORDS[verdictOf(tag)]);

// -- showing a photo -----------------------------------------------------------------------------------------------------

async function load(number) {
  const again = state.at >= 0 && state.at !== number;
  state.at = number;
  document.body.classList.add("loading"); // keys do nothing until the photo is shown
  try {
    const photo = await get(`/api/photos/${number}`);
    if (state.at !== number) return;
    for (const tag of photo.tags) tag.implied = tag.state;
    state.photo = photo;
    state.listed = photo.tags.filter((tag) => tag.given !== "present").slice(0, LISTED);
    state.cursor = 0;
    state.since = performance.now();
    draw();
    if (again) await pause(GUARD);
    prefetch();
  } catch (error) {
    note(error.message);
  } finally {
    if (state.at === number) document.body.classList.remove("loading");
  }
}

async function prefetch() {
  const next = following();
  if (next < 0) return;
  const photo = await get(`/api/photos/${next}`).catch(() => null);
  if (photo) new Image().src = `/picture/${photo.row}?side=1280`;
}

function draw() {
  const { photo } = state;
  $("large").lastElementChild.textContent = photo.image;
  $("large").firstElementChild.alt = photo.image;
  const tiles = state.listed.map((tag, position) => {
    const tile = document.createElement("li");
    tile.className = "tile";
    tile.id = `tile-${position}`;
    tile.setAttribute("role", "option");
    tile.dataset.position = position;
    tile.innerHTML = '<span class="words"><span><kbd></kbd> <span></span></span><span class="score"></span></span><span class="mark"></span>';
    const [key, name] = tile.querySelector(".words").firstElementChild.children;
    key.textContent = position < 9 ? position + 1 : "·";
    name.textContent = tag.label;
    tile.querySelector(".score").textContent = tag.probability === null ? "" : tag.probability.toFixed(2);
    return tile;
  });
  $("tiles").replaceChildren(...tiles);
  drawStates();
  move(state.cursor);
  count();
}

function drawStates() {
  drawTags($("tags"), state.photo.tags.filter((tag) => stateOf(tag) === "present"), (tag) => decide(tag, "absent"));
  $("none").hidden = Boolean($("tags").children.length);
  state.listed.forEach((tag, position) => {
    const tile = $(`tile-${position}`);
    const verdict = { present: "present", absent: "absent", "cannot tell": "doubt" }[stateOf(tag)];
    tile.classList.remove("present", "absent", "doubt");
    if (verdict) tile.classList.add(verdict);
    tile.classList.toggle("unsaved", queue.has(tag));
    const reason = queue.reason(tag);
    tile.classList.toggle("refused", reason !== undefined);
    tile.title = reason === undefined ? "" : `Not saved. ${reason}`;
    tile.querySelector(".mark").textContent = verdict ? MARKS[verdict] : "";
    tile.setAttribute("aria-label", `${tag.label}: ${stateOf(tag)}`);
  });
}

function move(to) {
  $(`tile-${state.cursor}`)?.classList.remove("current");
  $(`tile-${state.cursor}`)?.removeAttribute("aria-selected");
  state.cursor = Math.min(Math.max(to, 0), state.listed.length - 1);
  const tile = $(`tile-${state.cursor}`);
  if (tile) {
    tile.classList.add("current");
    tile.setAttribute("aria-selected", "true");
    tile.scrollIntoView({ block: "nearest" });
    $("tiles").setAttribute("aria-activedescendant", tile.id);
  }
  show();
}

function show() {
  const { photo, listed, cursor, heat, session } = state;
  const tag = listed[cursor];
  const label = tag && session.classes.indexOf(tag.label);
  const address = heat && tag ? `/heatmap/${photo.row}/${label}?side=1280` : `/picture/${photo.row}?side=1280`;
  showPicture($("large").firstElementChild, $("large"), address);
}

function count() {
  const finished = state.photos.filter((photo) => photo.finished).length;
  showProgress(finished, state.photos.length, state.finished, "photos complete");
  $("where").textContent = `photo ${state.at + 1} of ${state.photos.length}${state.photos[state.at]?.finished ? " · complete" : ""}`;
  const done = finished === state.photos.length;
  $("empty").hidden = !done;
  $("empty").textContent = "All photos are complete. End the review with Ctrl-C in the terminal; they move to their new split.";
}

// -- deciding --------------------------------------------------------------------------------------------------------

function decide(tag, verdict) {
  if (!tag || loading()) return;
  const now = performance.now();
  const seconds = Math.min(MAX_SECONDS, (now - state.since) / 1000);
  state.since = now;
  const id = newId();
  tag.decision = { id, present: VALUES[verdict], who: $("who").value };
  remember({ id, at: state.at });
  const own = { id, image: tag.image, label: tag.label, present: VALUES[verdict], seconds, seen: tag.number };
  queue.add("/api/decisions", { ...own, who: $("who").value });
  drawStates();
  $("said").textContent = `${tag.label}: ${WORDS[verdict]}`;
}

const toggle = (tag) => tag && decide(tag, stateOf(tag) === "present" ? "absent" : "present");

function finish() {
  if (loading() || !state.photo) return;
  const now = performance.now();
  const photo = state.photos[state.at];
  if (!photo.finished) {
    const id = newId();
    const seconds = Math.min(MAX_SECONDS, (now - state.since) / 1000);
    queue.add("/api/finish", { id, image: photo.image, seconds, who: $("who").value });
    remember({ id, at: state.at });
    photo.finished = true;
    state.finished.push(now);
    $("said").textContent = "photo complete";
  }
  turn(following());
}

// The next photo that is not complete, or -1.
function following() {
  const order = state.photos.map((_, step) => (state.at + 1 + step) % state.photos.length);
  return order.find((number) => number !== state.at && !state.photos[number].finished) ?? -1;
}

function turn(number) {
  if (number >= 0 && number < state.photos.length && !loading()) load(number);
  else count();
}

async function undo() {
  if (loading()) return;
  const last = state.undo.pop();
  if (!last) return note("There is nothing to undo.");
  sessionStorage.setItem("tagfill-undo-photos", JSON.stringify(state.undo));
  if (queue.withdraw(last.id)) return note("The decision that was not saved is discarded.");
  queue.add("/api/undo", { id: newId(), undoes: last.id, who: $("who").value });
  document.body.classList.add("loading");
  while (queue.waiting.length) await pause(20);
  state.photos = (await get("/api/photos")).photos;
  await load(last.at ?? state.at);
  $("said").textContent = "undone";
}

function remember(entry) {
  state.undo = [...state.undo.slice(-199), entry];
  sessionStorage.setItem("tagfill-undo-photos", JSON.stringify(state.undo));
}

function forgetUndo(id) {
  state.undo = state.undo.filter((entry) => entry.id !== id);
  sessionStorage.setItem("tagfill-undo-photos", JSON.stringify(state.undo));
}

// Show what the server confirmed, and the decisions of other reviewers.
function update(statuses, newest) {
  for (const now of statuses) {
    const tag = state.photo?.image === now.image && state.photo.tags.find(({ label }) => label === now.label);
    if (!tag || queue.has(tag)) continue;
    tag.number = now.number;
    if (now.refused && queue.reason(now) === undefined) note(now.refused); // another reviewer decided the same
    tag.decision = now.decision;
  }
  state.newest = Math.max(state.newest, newest ?? 0);
  if (state.photo) drawStates();
}

async function poll() {
  if (document.hidden || queue.waiting.length) return;
  try {
    const { newest, statuses } = await get(`/api/changes?since=${state.newest}`);
    const known = state.newest;
    update(statuses, newest);
    if (newest > known && !queue.waiting.length) state.photos = (await get("/api/photos")).photos;
    count();
  } catch {
    // the queue reports unsaved decisions
  }
}

async function changed(problem, refusal) {
  showSaved(queue, problem);
  if (refusal) note(`${refusal.reason} Your decision was not saved.`);
  if (state.photo) drawStates();
  if (refusal) state.photos = (await get("/api/photos")).photos;
  if (state.photo) count();
}

// -- starting ---------------------------------------------------------------------------------------------------------

const current = () => state.listed[state.cursor];
const ACTS = {
  finish, undo, present: () => decide(current(), "present"), absent: () => decide(current(), "absent"),
  doubt: () => decide(current(), "doubt"), search: () => $("search").focus(), skip: () => turn(following()),
  on: () => turn(state.at + 1), back: () => turn(state.at - 1),
};
const KEYS = {
  Enter: finish, p: ACTS.present, " ": () => toggle(current()), a: ACTS.absent, Backspace: ACTS.absent, c: ACTS.doubt, s: ACTS.skip,
  u: undo, "/": ACTS.search, ArrowUp: () => move(state.cursor - 1), ArrowDown: () => move(state.cursor + 1), ArrowLeft: ACTS.back,
  ArrowRight: ACTS.on, PageUp: ACTS.back, PageDown: ACTS.on, "?": () => $("keys").showModal(), h: toggleHeatmap,
};

function toggleHeatmap() {
  if (!state.session.heatmaps) return note("Start the review with --run to see heatmaps.");
  state.heat = !state.heat;
  show();
}

function onKey(event) {
  if (event.target.matches("input") || document.querySelector("dialog[open]") || event.altKey || event.metaKey) return;
  if (event.ctrlKey && event.key !== "z") return;
  if (event.target.matches("button") && ["Enter", " "].includes(event.key)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = event.ctrlKey ? undo : /^[1-9]$/.test(key) ? () => toggle(state.listed[key - 1]) : KEYS[key];
  if (!act) return;
  event.preventDefault();
  if (!state.photo) return;
  act();
}

async function start() {
  state.session = await get("/api/session");
  state.newest = state.session.newest;
  state.photos = (await get("/api/photos")).photos;
  document.title = `Tagfill review: ${state.session.dataset}`;
  $("dataset").textContent = state.session.dataset;
  $("who").value = localStorage.getItem("tagfill-who") ?? state.session.reviewer;
  $("who").addEventListener("change", () => localStorage.setItem("tagfill-who", $("who").value));
  queue = new Queue(state.session.dataset, update, changed, forgetUndo);
  showSaved(queue, null);
  listRefused(queue);
  const tagNamed = (name) => state.photo.tags.find(({ label }) => label === name);
  search = new TagSearch($("search"), $("matches"), state.session.classes, (name) => decide(tagNamed(name), "present"), () =>
    $("tiles").focus());
  document.addEventListener("keydown", onKey);
  document.querySelector("footer").addEventListener("click", (event) => {
    const act = event.target.closest("[data-act]")?.dataset.act;
    if (act) ACTS[act]();
  });
  $("tiles").addEventListener("click", (event) => {
    const position = event.target.closest(".tile")?.dataset.position;
    if (position === undefined) return;
    move(Number(position));
    toggle(current());
  });
  document.addEventListener("visibilitychange", () => (state.since = performance.now()));
  setInterval(poll, 2000);
  while (queue.waiting.length && !queue.problem) await pause(20); // of before a reload
  const first = state.photos.findIndex((photo) => !photo.finished);
  await load(Math.max(0, first));
  $("tiles").focus();
}

start().catch((error) => note(error.message));
