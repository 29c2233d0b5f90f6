// The page for looking at a dataset. What it shows is in the part of its address after #, so that "back" and reloading work.

import { $, get, note } from "/page.js";
import { PAGE, PhotoGrid } from "/grid.js";
import { PhotoMap } from "/map.js";

const MANY = 40; // labels of one state that are listed
const NEAREST = 8; // photos beside an open one
const SETTLE = 200; // milliseconds that a photo stays open before the nearest ones are looked up
const PAN = 60; // pixels
const state = { about: null, wanted: {}, open: null };
let grid, map;

const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function query(wanted, more = {}) {
  const { label, state: asked, split, text, like } = wanted;
  const given = { label, state: asked, split, text, like, ...more };
  return new URLSearchParams(Object.entries(given).filter(([, value]) => value !== undefined && value !== ""));
}

// Change what is shown; `undefined` removes a part. Typing does not add a step to "back".
function go(changes, typing = false) {
  const wanted = { ...readAddress(), ...changes };
  const text = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== undefined && value !== "")).toString();
  if (text === location.hash.slice(1)) return;
  history[typing ? "replaceState" : "pushState"](null, "", `#${text}`);
  refresh();
}

const refresh = () => show().catch((error) => note(error.message));

async function show() {
  const { photo, view, ...wanted } = readAddress();
  const changed = !state.shown || query(wanted).toString() !== query(state.shown).toString();
  state.wanted = wanted;
  showAs(view === "map");
  drawFilter();
  const work = changed ? [list(wanted)] : [];
  if (state.mapped && !state.about.needs_features) work.push(drawMap(wanted));
  await Promise.all(work);
  if (photo === undefined) closePanel();
  else if (String(state.open) !== photo) await showPhoto(Number(photo));
}

function drawFilter() {
  const { label = "", state: asked = "any", split = "", text = "" } = state.wanted;
  $("label").value = label;
  $("state").value = asked;
  $("split").value = split;
  if (document.activeElement !== $("text")) $("text").value = text;
  $("label").disabled = asked === "unlabeled";
  $("clear").disabled = !query(state.wanted).toString();
  drawLike(state.wanted.like).catch((error) => note(error.message));
}

// The photo that the others are compared with, if they are.
async function drawLike(row) {
  if ($("like").dataset.row === row) return;
  $("like").hidden = row === undefined;
  if (row === undefined) return void delete $("like").dataset.row;
  $("like").dataset.row = row;
  $("like").querySelector("img").src = `/picture/${row}?side=160`;
  $("like").querySelector("b").textContent = "";
  const { image } = await get(`/api/photos/${row}`);
  if ($("like").dataset.row === row) $("like").querySelector("b").textContent = image.split("/").at(-1);
}

async function list(wanted) {
  state.shown = wanted;
  document.body.classList.add("loading");
  try {
    const answer = marked(await get(`/api/photos?${query(wanted, { start: 0, count: PAGE })}`));
    if (state.shown !== wanted) return; // the next list is on its way
    grid.reset(answer.total, answer.photos);
    $("empty").hidden = answer.total > 0;
    const all = state.about.photos;
    const found = answer.total === all ? `${all.toLocaleString()} photos` : `${answer.total.toLocaleString()} of ${all.toLocaleString()} photos`;
    $("found").textContent = found;
  } finally {
    if (state.shown === wanted) document.body.classList.remove("loading");
  }
}

// Marks show the state of the class that is chosen, if any.
function marked(answer) {
  if (state.shown.label && state.shown.state !== "unlabeled") {
    for (const photo of answer.photos) if (photo.state >= 0) photo.mark = photo.state;
  }
  return answer;
}

const fetchPage = async (start, count) => {
  try {
    return marked(await get(`/api/photos?${query(state.shown, { start, count })}`));
  } catch (error) {
    note(error.message);
    throw error;
  }
};

// -- the map -------------------------------------------------------------------------------------------------------------

function showAs(mapped) {
  state.mapped = mapped;
  document.body.classList.toggle("mapped", mapped);
  const needs = state.about.needs_features;
  $("map").hidden = !mapped || needs !== null;
  $("no-map").hidden = !mapped || needs === null;
  $("no-map").textContent = needs ?? "";
  $("as-grid").setAttribute("aria-pressed", !mapped);
  $("as-map").setAttribute("aria-pressed", mapped);
}

// Points have the color of the state of the chosen class; the others of a filter are faded.
async function drawMap(wanted) {
  const { label } = wanted;
  const filter = query({ ...wanted, like: undefined }).toString();
  if (filter === state.colored) return;
  state.colored = filter;
  $("plane").classList.add("busy");
  try {
    const about = await map.load();
    const counts = await map.color(filter);
    if (!counts) return;
    const titles = label
      ? { present: `${label} present`, absent: `${label} absent`, unknown: `${label} unknown` }
      : { present: "some class present", absent: "classes only absent", unknown: "no class known" };
    for (const [name, title] of Object.entries(titles)) {
      $("legend").querySelector(`.${name} b`).textContent = `${title} (${counts[name].toLocaleString()})`;
    }
    $("about-map").textContent = describeMap(about);
  } catch (error) {
    state.colored = undefined;
    throw error;
  } finally {
    $("plane").classList.remove("busy");
  }
}

function describeMap({ points, photos, share }) {
  const some = points < photos ? ` It shows ${points.toLocaleString()} of ${photos.toLocaleString()} photos.` : "";
  return `Principal components of the photos' features: the two axes hold ${(100 * share).toFixed(0)}% of their variation. `
    + `Photos far apart differ; photos close together may still differ along the other axes.${some}`;
}

const showMap = (mapped) => go({ view: mapped ? "map" : undefined, ...(mapped ? { like: undefined } : {}) });

function togglePictures() {
  const shown = $("pictures").getAttribute("aria-pressed") !== "true";
  $("pictures").setAttribute("aria-pressed", shown);
  map.showPictures(shown);
}

// -- one photo --------------------------------------------------------------------------------------------------------

async function showPhoto(row) {
  state.open = row;
  map.mark(row);
  $("nearest").hidden = true;
  clearTimeout(state.looking);
  if (!state.about.needs_features) state.looking = setTimeout(() => showNearest(row).catch((error) => note(error.message)), SETTLE);
  const photo = await get(`/api/photos/${row}`);
  if (state.open !== row) return;
  $("panel").hidden = false;
  $("name").textContent = photo.image;
  const size = photo.width && photo.height ? ` · ${photo.width} × ${photo.height} pixels` : "";
  $("facts").textContent = `split ${photo.split}${size}`;
  $("picture").src = `/picture/${row}?side=640`;
  $("picture").alt = photo.image;
  $("full").href = `/picture/${row}?side=1280`;
  const known = photo.present.length + photo.absent.length + photo.undecided.length;
  const unknown = state.about.classes.length - known;
  const parts = [["present", "Present"], ["absent", "Absent"], ["undecided", "Cannot tell"]]
    .filter(([name]) => photo[name].length)
    .map(([name, title]) => drawLabels(name, title, photo[name]));
  const rest = document.createElement("h3");
  rest.textContent = known ? `${unknown.toLocaleString()} classes are not annotated` : "No label yet";
  $("known").replaceChildren(...parts, ...(unknown ? [rest] : []));
}

async function showNearest(row) {
  const { photos } = await get(`/api/photos?${query({ like: row }, { start: 0, count: NEAREST + 1 })}`);
  if (state.open !== row) return;
  const others = photos.filter((photo) => photo.row !== row).slice(0, NEAREST);
  $("nearest").querySelector("ul").replaceChildren(...others.map((photo) => {
    const button = document.createElement("button");
    button.title = [photo.image, ...photo.present].join("\n");
    button.addEventListener("click", () => go({ photo: photo.row }));
    const picture = Object.assign(document.createElement("img"), { src: `/picture/${photo.row}?side=160`, alt: photo.image });
    const similarity = Object.assign(document.createElement("span"), { textContent: photo.similarity.toFixed(2) });
    button.append(picture, similarity);
    const item = document.createElement("li");
    item.append(button);
    return item;
  }));
  $("nearest").hidden = !others.length;
}

// All photos, those nearest to the open one first; without an open one, to the one that is chosen in the grid.
function showLike() {
  if (state.about.needs_features) return note(state.about.needs_features);
  const row = state.open ?? (state.mapped ? undefined : grid.photo(grid.cursor)?.row);
  if (row !== undefined) go({ like: row, view: undefined });
}

function drawLabels(name, title, labels) {
  const section = document.createElement("section");
  section.className = name;
  const heading = document.createElement("h3");
  heading.textContent = `${title} (${labels.length.toLocaleString()})`;
  const list = document.createElement("ul");
  for (const label of labels.slice(0, MANY)) {
    const button = document.createElement("button");
    button.textContent = label;
    button.addEventListener("click", () => go({ label, state: { present: "present", absent: "absent" }[name] ?? "unknown" }));
    const item = document.createElement("li");
    item.append(button);
    list.append(item);
  }
  if (labels.length > MANY) list.append(Object.assign(document.createElement("li"), { textContent: `and ${labels.length - MANY} more` }));
  section.append(heading, list);
  return section;
}

function closePanel() {
  state.open = null;
  map.mark(null);
  clearTimeout(state.looking);
  $("panel").hidden = true;
}

const turn = (step) => grid.open(grid.cursor + step);

// -- starting ---------------------------------------------------------------------------------------------------------

function option(value, text) {
  return Object.assign(document.createElement("option"), { value, textContent: text });
}

function turnClass(step) {
  const at = $("label").selectedIndex + step;
  if (at < 0 || at >= $("label").length) return;
  chooseClass($("label").options[at].value);
}

// A class alone means: photos that show it. On the map, it only chooses the colors.
function chooseClass(label) {
  const asked = state.wanted.state;
  const unasked = !asked || asked === "any" || asked === "unlabeled";
  go({ label, state: label && unasked && !state.wanted.label && !state.mapped ? "present" : asked });
}

const clear = () => go({ label: undefined, state: undefined, split: undefined, text: undefined, like: undefined });

function toggleWhole() {
  const whole = document.body.classList.toggle("whole");
  $("whole").setAttribute("aria-pressed", whole);
}

const KEYS = {
  ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(-grid.columns), ArrowDown: () => step(grid.columns),
  PageUp: () => step(-grid.screen), PageDown: () => step(grid.screen), Home: () => step(-Infinity), End: () => step(Infinity),
  Enter: () => grid.open(grid.cursor), Escape: () => go({ photo: undefined }), "[": () => turnClass(-1), "]": () => turnClass(1),
  n: showLike, m: () => showMap(!state.mapped), w: toggleWhole, "/": () => $("text").focus(), "?": () => $("keys").showModal(),
};

const MAP_KEYS = {
  ArrowLeft: () => map.move(PAN, 0), ArrowRight: () => map.move(-PAN, 0), ArrowUp: () => map.move(0, PAN),
  ArrowDown: () => map.move(0, -PAN), "+": () => map.zoomBy(1.5), "=": () => map.zoomBy(1.5), "-": () => map.zoomBy(1 / 1.5),
  0: () => map.fit(), p: togglePictures, Home: null, End: null, PageUp: null, PageDown: null, Enter: null, w: null,
};

// With an open photo, moving opens the next one.
function step(count) {
  if (state.open === null) grid.move(grid.cursor + count);
  else grid.open(Math.max(0, Math.min(grid.total - 1, grid.cursor + count)));
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") $("photos").focus({ preventScroll: true });
    return;
  }
  if (event.target.matches("button, a") && ["Enter", " "].includes(event.key)) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const act = state.mapped && key in MAP_KEYS ? MAP_KEYS[key] : KEYS[key];
  if (!act) return;
  event.preventDefault();
  act();
}

async function start() {
  const about = (state.about = await get("/api/dataset"));
  document.title = `Tagfill: ${about.dataset}`;
  $("dataset").textContent = about.dataset;
  $("label").append(option("", "any"), ...about.classes.map(({ label, present }) => option(label, `${label} (${present.toLocaleString()})`)));
  $("split").append(option("", "all"), ...about.splits.map(({ split, photos }) => option(split, `${split} (${photos.toLocaleString()})`)));
  grid = new PhotoGrid($("scroller"), $("extent"), $("photos"), fetchPage, (photo) => go({ photo: photo.row }));
  map = new PhotoMap($("points"), $("hint"), (row) => go({ photo: row }));
  $("as-grid").addEventListener("click", () => showMap(false));
  $("as-map").addEventListener("click", () => showMap(true));
  $("pictures").addEventListener("click", togglePictures);
  $("in").addEventListener("click", () => map.zoomBy(1.5));
  $("out").addEventListener("click", () => map.zoomBy(1 / 1.5));
  $("fit").addEventListener("click", () => map.fit());
  $("all-nearest").addEventListener("click", showLike);
  $("like").querySelector("button").addEventListener("click", () => go({ like: undefined }));
  $("label").addEventListener("change", () => chooseClass($("label").value));
  $("state").addEventListener("change", () => go({ state: $("state").value === "any" ? undefined : $("state").value }));
  $("split").addEventListener("change", () => go({ split: $("split").value }));
  $("text").addEventListener("input", () => {
    clearTimeout(state.typing);
    state.typing = setTimeout(() => go({ text: $("text").value.trim() }, true), 150);
  });
  $("clear").addEventListener("click", clear);
  $("clear-all").addEventListener("click", clear);
  $("whole").addEventListener("click", toggleWhole);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("previous").addEventListener("click", () => turn(-1));
  $("next").addEventListener("click", () => turn(1));
  $("close").addEventListener("click", () => go({ photo: undefined }));
  document.addEventListener("keydown", onKey);
  window.addEventListener("popstate", refresh);
  await show();
  $("photos").focus({ preventScroll: true });
}

start().catch((error) => note(error.message));
