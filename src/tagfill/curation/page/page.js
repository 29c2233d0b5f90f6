// What the pages share: requests, notes, the question, and the search box for tags.

export const VALUES = { present: true, absent: false, doubt: null };
export const WORDS = { present: "present", absent: "absent", doubt: "cannot tell" };
export const MARKS = { present: "✓", absent: "✗", doubt: "?" };
export const MAX_SECONDS = 60; // per decision; a longer pause is a break
export const GUARD = 250; // milliseconds without keys after the question changes, for keys that were meant for the last one

export const $ = (id) => document.getElementById(id);
export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
export const loading = () => document.body.classList.contains("loading");

export async function get(address) {
  const response = await fetch(address);
  if (response.ok) return response.json();
  const reply = await response.json().catch(() => ({}));
  throw new Error(reply.error ?? `The server responded with status ${response.status}.`);
}

export function note(text) {
  $("note").textContent = text;
  $("note").hidden = false;
  clearTimeout(note.timer);
  note.timer = setTimeout(() => ($("note").hidden = true), 5000);
}

export const verdictOf = ({ decision }) =>
  decision === null ? null : decision.present === null ? "doubt" : decision.present ? "present" : "absent";

export const question = (label) => `Is there ${/^[aeiou]/i.test(label) ? "an" : "a"} ${label}?`;

export const doubt = ({ label, annotated }) =>
  annotated ? `tagged ${label}; the model doubts it` : `${label} was ruled out; the model sees it`;

export const duration = (minutes) =>
  minutes < 60 ? `${Math.max(1, Math.round(minutes))} min` : `${(minutes / 60).toFixed(1)} h`;

export function showProgress(done, total, times, unit) {
  const bar = document.querySelector(".progress");
  bar.firstElementChild.style.width = `${total ? (100 * done) / total : 0}%`;
  bar.setAttribute("aria-valuemax", total);
  bar.setAttribute("aria-valuenow", done);
  const now = performance.now();
  while (times.length && now - times[0] >= 300_000) times.shift();
  const minutes = times.length ? Math.max((now - times[0]) / 60_000, 0.2) : 0;
  const rate = minutes ? times.length / minutes : 0;
  const left = rate >= 1 ? ` · ${Math.round(rate)} per minute, ${duration((total - done) / rate)} left` : "";
  $("pace").textContent = `${done.toLocaleString()} of ${total.toLocaleString()} ${unit}${left}`;
}

// Whether the log holds every decision; if not, how many it lacks and why. The button lists those that were refused.
export function showSaved({ waiting, refused }, problem) {
  const missing = refused.length + (problem ? waiting.length : 0);
  const reason = problem ?? refused.at(-1)?.reason;
  $("saved").textContent = missing ? `${missing} not saved. ${reason}` : waiting.length ? "Saving…" : "All saved";
  $("saved").classList.toggle("waiting", missing > 0);
  $("unsaved").hidden = !refused.length;
  $("refused-list").replaceChildren(...refused.map((entry) => {
    const item = document.createElement("li");
    const title = document.createElement("b");
    title.textContent = describe(entry);
    item.append(title, ` ${entry.reason}`);
    return item;
  }));
  if (!refused.length) $("refused").close();
}

const verdictOfValue = (present) => (present === null ? WORDS.doubt : present ? WORDS.present : WORDS.absent);

function describe({ address, body }) {
  if (address === "/api/decisions") return `${body.image}, ${body.label}: ${verdictOfValue(body.present)}.`;
  if (address === "/api/finish") return `${body.image}: no other tags.`;
  if (address === "/api/undo") return "Undo.";
  return `${body.label}: accept ${body.count ?? "all"} with a score of at least ${body.minimum}.`;
}

// The list of refused decisions, and what can be done about them.
export function listRefused(queue) {
  $("unsaved").addEventListener("click", () => $("refused").showModal());
  $("send-again").addEventListener("click", () => queue.sendAgain());
  $("discard").addEventListener("click", () => queue.discard());
}

// Show a picture, with a spinner until it is there: the first class map needs the model, which takes a while to open.
export function showPicture(image, frame, address) {
  if (image.getAttribute("src") === address) return;
  const slow = address.startsWith("/heatmap");
  frame.classList.toggle("busy", slow);
  image.onload = image.onerror = () => frame.classList.remove("busy");
  image.src = address;
}

// The tags that a photo has, each with a button that removes it.
export function drawTags(list, tags, remove) {
  list.replaceChildren(...tags.map((tag) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.textContent = "×";
    button.setAttribute("aria-label", `Remove ${tag.label}`);
    button.addEventListener("click", () => remove(tag));
    item.append(`${tag.label} `, button);
    return item;
  }));
}

// A search box for any class: type a part of its name, choose with the arrow keys, add with Enter.
export class TagSearch {
  constructor(input, list, classes, add, leave) {
    Object.assign(this, { input, list, classes, add, leave, found: [], at: 0 });
    input.addEventListener("input", () => this.search());
    input.addEventListener("keydown", (event) => this.onKey(event));
    input.addEventListener("blur", () => setTimeout(() => (this.list.hidden = true), 150));
    list.addEventListener("click", (event) => this.choose(Number(event.target.closest("li")?.dataset.at ?? -1)));
  }

  search() {
    const text = this.input.value.trim().toLowerCase();
    const begins = this.classes.filter((name) => name.toLowerCase().startsWith(text));
    const holds = this.classes.filter((name) => name.toLowerCase().indexOf(text) > 0);
    this.found = text ? [...begins, ...holds].slice(0, 8) : [];
    this.at = 0;
    this.draw();
  }

  draw() {
    this.list.replaceChildren(...this.found.map((name, at) => {
      const item = document.createElement("li");
      item.textContent = name;
      item.dataset.at = at;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", at === this.at);
      return item;
    }));
    this.list.hidden = !this.found.length;
  }

  onKey(event) {
    const { key } = event;
    if (key === "ArrowDown" || key === "ArrowUp") {
      const count = this.found.length || 1;
      this.at = (this.at + (key === "ArrowDown" ? 1 : count - 1)) % count;
      this.draw();
    } else if (key === "Enter") {
      if (this.found.length) this.choose(this.at);
      else if (this.input.value.trim()) note(`There is no class “${this.input.value.trim()}”.`);
    } else if (key === "Escape") {
      this.clear();
      this.leave();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(at) {
    const name = this.found[at];
    if (name === undefined) return;
    this.clear();
    this.add(name);
    this.leave();
  }

  clear() {
    this.input.value = "";
    this.found = [];
    this.draw();
  }
}
