// The page for looking at a dataset. What it shows is in the part of its address after #, so that "back" and reloading work.

import { $, get, note } from "/page.js";
import { PAGE, PhotoGrid } from "/grid.js";

const MANY = 40; // labels of one state that are listed
const state = { about: null, wanted: {}, open: null };
let grid;

const readAddress = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function query(wanted, more = {}) {
  const { label, state: asked, split, text } = wanted;
  const given = { label, state: asked, split, text, ...more };
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
  const { photo, ...wanted } = readAddress();
  const changed = !state.shown || query(wanted).toString() !== query(state.shown).toString();
  state.wanted = wanted;
  drawFilter();
  if (changed) await list(wanted);
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

// -- one photo --------------------------------------------------------------------------------------------------------

async function showPhoto(row) {
  state.open = row;
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

// A class alone means: photos that show it.
function chooseClass(label) {
  const asked = state.wanted.state;
  go({ label, state: label && (!asked || asked === "any" || asked === "unlabeled") && !state.wanted.label ? "present" : asked });
}

const clear = () => go({ label: undefined, state: undefined, split: undefined, text: undefined });

function toggleWhole() {
  const whole = document.body.classList.toggle("whole");
  $("whole").setAttribute("aria-pressed", whole);
}

const KEYS = {
  ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => step(-grid.columns), ArrowDown: () => step(grid.columns),
  PageUp: () => step(-grid.screen), PageDown: () => step(grid.screen), Home: () => step(-Infinity), End: () => step(Infinity),
  Enter: () => grid.open(grid.cursor), Escape: () => go({ photo: undefined }), "[": () => turnClass(-1), "]": () => turnClass(1),
  w: toggleWhole, "/": () => $("text").focus(), "?": () => $("keys").showModal(),
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
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
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
