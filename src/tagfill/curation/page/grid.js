// A grid of any number of photos. Only the tiles on the screen, and a few rows around it, are elements of the page: a tile
// that leaves the screen is used again for one that enters it. What they show comes from the server in pages.

const PAGE = 120; // photos in a request
const MAX_PAGES = 60; // kept in memory
const NARROWEST = 148, GAP = 10, CAPTION = 44; // pixels
const SPARE_ROWS = 2; // above and below the screen
const SETTLE = 90; // milliseconds; what flies by faster is not loaded
const MAX_HEIGHT = 8_000_000; // pixels; browsers cannot scroll much higher elements

export class PhotoGrid {
  // fetchPage: from (start, count) to a promise of {total, photos}; onOpen: called with a photo and its position.
  constructor(scroller, extent, list, fetchPage, onOpen) {
    Object.assign(this, { scroller, extent, list, fetchPage, onOpen });
    this.total = 0;
    this.cursor = 0;
    this.draw_ = () => this.draw();
    scroller.addEventListener("scroll", () => this.schedule(), { passive: true });
    new ResizeObserver(() => this.resize()).observe(scroller);
    list.addEventListener("click", (event) => {
      const tile = event.target.closest(".tile");
      if (tile) this.open(Number(tile.dataset.position));
    });
    this.reset(0);
  }

  // Show another list; its first page may be given.
  reset(total, photos = []) {
    this.generation = (this.generation ?? 0) + 1;
    this.total = total;
    this.pages = new Map(photos.length ? [[0, photos]] : []);
    this.asked = new Set();
    this.cursor = 0;
    this.first = 0;
    this.list.replaceChildren();
    this.tiles = [];
    this.scroller.scrollTop = 0;
    this.resize();
  }

  resize() {
    const style = getComputedStyle(this.scroller);
    const width = this.scroller.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (width <= 0) return; // hidden
    const anchor = this.columns && this.anchor();
    this.columns = Math.max(2, Math.floor((width + GAP) / (NARROWEST + GAP)));
    this.side = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.rowHeight = this.side + CAPTION + GAP;
    const height = Math.ceil(this.total / this.columns) * this.rowHeight;
    this.view = this.scroller.clientHeight;
    this.shown = Math.min(height, MAX_HEIGHT);
    this.factor = height > MAX_HEIGHT ? (height - this.view) / (MAX_HEIGHT - this.view) : 1;
    this.extent.style.height = `${this.shown}px`;
    if (anchor) this.scroller.scrollTop = (Math.floor(anchor.position / this.columns) * this.rowHeight - anchor.y) / this.factor;
    for (const tile of this.tiles) tile.dataset.position = -1;
    this.draw(true);
  }

  // A photo that stays where it is while the window changes: the chosen one if it is on the screen, else the first.
  anchor() {
    const y = (position) => Math.floor(position / this.columns) * this.rowHeight - this.top();
    const seen = y(this.cursor) >= 0 && y(this.cursor) + this.rowHeight <= this.view;
    const position = seen ? this.cursor : Math.floor(this.top() / this.rowHeight) * this.columns;
    return { position, y: y(position) };
  }

  // Pixels above the screen, of a list that is not shortened.
  top() {
    return this.scroller.scrollTop * this.factor;
  }

  schedule() {
    this.frame ??= requestAnimationFrame(this.draw_);
  }

  // Use the tiles for what is on the screen now.
  draw(settled = false) {
    this.frame = undefined;
    if (!this.columns) return;
    const row = Math.floor(this.top() / this.rowHeight);
    const rows = Math.ceil(this.view / this.rowHeight) + 1 + 2 * SPARE_ROWS;
    const first = Math.max(0, row - SPARE_ROWS) * this.columns;
    const last = Math.min(this.total, first + rows * this.columns);
    const flying = !settled && Math.abs(first - this.first) > rows * this.columns;
    this.first = first;
    this.resizePool(rows * this.columns);
    const shift = this.scroller.scrollTop - this.top();
    const used = new Set();
    for (let position = first; position < last; position++) {
      const tile = this.tiles[position % this.tiles.length];
      used.add(tile);
      if (Number(tile.dataset.position) !== position) this.assign(tile, position);
      const x = (position % this.columns) * (this.side + GAP);
      const y = Math.floor(position / this.columns) * this.rowHeight + shift;
      tile.style.transform = `translate(${x}px, ${y}px)`;
    }
    for (const tile of this.tiles) tile.hidden = !used.has(tile);
    clearTimeout(this.timer);
    if (flying) this.timer = setTimeout(() => this.load(first, last), SETTLE);
    else this.load(first, last);
  }

  resizePool(count) {
    while (this.tiles.length < count) this.tiles.push(newTile());
    const removed = this.tiles.splice(count);
    for (const tile of removed) tile.remove();
    if (removed.length || this.list.childElementCount !== count) {
      this.list.replaceChildren(...this.tiles);
      for (const tile of this.tiles) tile.dataset.position = -1; // another number of tiles: other positions
    }
  }

  assign(tile, position) {
    tile.dataset.position = position;
    tile.id = `photo-${position}`;
    tile.style.width = `${this.side}px`;
    tile.style.height = `${this.side + CAPTION}px`;
    tile.setAttribute("aria-posinset", position + 1);
    tile.setAttribute("aria-setsize", this.total);
    tile.classList.remove("broken");
    tile.querySelector("img").removeAttribute("src");
    tile.dataset.state = "";
    tile.dataset.row = "";
    for (const part of tile.querySelectorAll(".name, .score, .tags, .mark")) part.textContent = "";
    mark(tile, position === this.cursor);
    this.fill(tile, false);
  }

  // Write what is known about the photo of a tile; its picture only once the list stands still.
  fill(tile, withPicture) {
    const position = Number(tile.dataset.position);
    const photo = this.photo(position);
    if (!photo) return;
    if (tile.dataset.row !== String(photo.row)) {
      tile.dataset.row = photo.row;
      tile.dataset.state = photo.mark ?? "";
      tile.querySelector(".mark").textContent = { 1: "✓", 0: "✗" }[photo.mark] ?? "";
      tile.querySelector(".name").textContent = photo.image.split("/").at(-1);
      tile.querySelector(".score").textContent = photo.similarity === undefined ? "" : photo.similarity.toFixed(2);
      tile.querySelector(".tags").textContent = photo.present.join(", ") || "–";
      tile.title = photo.image;
    }
    const image = tile.querySelector("img");
    const address = `/picture/${photo.row}?side=320`;
    if (withPicture && image.getAttribute("src") !== address) {
      image.alt = photo.image;
      image.onerror = () => tile.classList.add("broken");
      image.src = address;
    }
  }

  photo(position) {
    return this.pages.get(Math.floor(position / PAGE))?.[position % PAGE];
  }

  async load(first, last) {
    for (let number = Math.floor(first / PAGE); number * PAGE < last; number++) {
      if (!this.pages.has(number)) this.ask(number);
    }
    this.fillAll(first, last);
  }

  fillAll(first, last) {
    for (const tile of this.tiles) {
      const position = Number(tile.dataset.position);
      if (position >= first && position < last) this.fill(tile, true);
    }
  }

  async ask(number) {
    if (this.asked.has(number)) return;
    this.asked.add(number);
    const generation = this.generation;
    try {
      const { photos } = await this.fetchPage(number * PAGE, PAGE);
      if (generation !== this.generation) return;
      this.pages.set(number, photos);
      if (this.pages.size > MAX_PAGES) this.pages.delete(this.pages.keys().next().value);
      this.fillAll(this.first, this.first + this.tiles.length);
    } finally {
      if (generation === this.generation) this.asked.delete(number);
    }
  }

  // Move the cursor, and scroll to it.
  move(position) {
    if (!this.total) return;
    const before = this.tileAt(this.cursor);
    if (before) mark(before, false);
    this.cursor = Math.max(0, Math.min(this.total - 1, position));
    const y = Math.floor(this.cursor / this.columns) * this.rowHeight;
    const hidden = y < this.top() ? y : y + this.rowHeight > this.top() + this.view - 24 ? y + this.rowHeight - this.view + 24 : null;
    if (hidden !== null) {
      this.scroller.scrollTop = hidden / this.factor;
      this.draw();
    }
    const tile = this.tileAt(this.cursor);
    if (tile) mark(tile, true);
    this.list.setAttribute("aria-activedescendant", `photo-${this.cursor}`);
  }

  tileAt(position) {
    return this.tiles.find((tile) => !tile.hidden && Number(tile.dataset.position) === position);
  }

  // Open a photo; its page may have to be loaded first.
  async open(position) {
    this.move(position);
    const at = this.cursor;
    const generation = this.generation;
    if (!this.photo(at)) await this.ask(Math.floor(at / PAGE));
    if (generation === this.generation && at === this.cursor && this.photo(at)) this.onOpen(this.photo(at), at);
  }

  get screen() {
    return Math.max(1, Math.floor(this.view / this.rowHeight)) * this.columns;
  }
}

export { PAGE };

function newTile() {
  const tile = document.createElement("li");
  tile.className = "tile";
  tile.setAttribute("role", "option");
  const frame = document.createElement("div");
  frame.className = "frame";
  const image = document.createElement("img");
  image.decoding = "async";
  frame.append(image);
  const words = document.createElement("div");
  words.className = "words";
  words.append(part("span", "name"), part("span", "score"));
  tile.append(frame, part("span", "mark"), words, part("div", "tags"));
  return tile;
}

function part(kind, name) {
  const element = document.createElement(kind);
  element.className = name;
  return element;
}

function mark(tile, current) {
  tile.classList.toggle("current", current);
  tile.setAttribute("aria-selected", current);
}
