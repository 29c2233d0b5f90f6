// A map of photos: a point for each, on the two axes along which their features vary most. The wheel zooms, dragging moves.
// Only what is on the screen is drawn, and photos are shown for at most one point of each cell of a coarse grid.

import { get } from "/page.js";

const STATES = ["absent", "present", "unknown"]; // what the server's bytes mean
const MATCHES = 4; // bit of photos that the filter shows
const REACH = 14; // pixels from a point at which the pointer touches it
const MARGIN = 28; // pixels around all points
const MAX_ZOOM = 400;
const CELL = 76, PICTURE = 68; // pixels
const MAX_PICTURES = 600; // kept in memory
const DRAGGED = 4; // pixels; less is a click

async function getBytes(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error ?? "The server did not answer.");
  return response.arrayBuffer();
}

export class PhotoMap {
  // canvas: where to draw; hint: element that shows the photo under the pointer; onOpen: called with the row of a photo.
  constructor(canvas, hint, onOpen) {
    Object.assign(this, { canvas, hint, onOpen, zoom: 1, x: 0, y: 0, marked: null, pictures: false, images: new Map() });
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("dblclick", () => this.fit());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.schedule());
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  // Load what does not depend on the filter; gives the server's description of the map.
  async load() {
    if (this.about) return this.about;
    const about = await get("/api/map");
    const bytes = await getBytes("/api/map/points");
    const count = about.points;
    this.rows = new Int32Array(bytes, 0, count);
    this.xs = new Float32Array(bytes, 4 * count, count);
    this.ys = new Float32Array(bytes, 8 * count, count);
    this.box = [...range(this.xs), ...range(this.ys)];
    return (this.about = about);
  }

  // Color the points by the state of a class, and fade those that a filter does not show; gives how many have each state.
  async color(query) {
    this.query = query;
    const states = new Uint8Array(await getBytes(`/api/map/states?${query}`));
    if (this.query !== query) return null; // the next filter is on its way
    this.states = states;
    const counts = [0, 0, 0];
    for (const state of states) if (state & MATCHES) counts[state & 3]++;
    this.resize();
    return Object.fromEntries(STATES.map((name, at) => [name, counts[at]]));
  }

  mark(row) {
    this.marked = row;
    this.schedule();
  }

  showPictures(shown) {
    this.pictures = shown;
    this.schedule();
  }

  fit() {
    Object.assign(this, { zoom: 1, x: 0, y: 0 });
    this.schedule();
  }

  move(x, y) {
    this.x += x;
    this.y += y;
    this.schedule();
  }

  // Zoom around a place of the screen; its center if none is given.
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.zoom;
    this.zoom = Math.min(MAX_ZOOM, Math.max(1, before * factor));
    const by = this.zoom / before;
    this.x = (this.x - x + this.width / 2) * by + x - this.width / 2;
    this.y = (this.y - y + this.height / 2) * by + y - this.height / 2;
    if (this.zoom === 1) this.x = this.y = 0;
    this.schedule();
  }

  resize() {
    const { canvas } = this;
    const { clientWidth, clientHeight } = canvas;
    if (!clientWidth || !this.box) return; // hidden, or not loaded
    this.point(-1);
    Object.assign(this, { width: clientWidth, height: clientHeight, density: window.devicePixelRatio || 1 });
    canvas.width = Math.round(this.width * this.density);
    canvas.height = Math.round(this.height * this.density);
    this.schedule();
  }

  // Pixels of a point: [x, y]; both axes have the same scale.
  scale() {
    const [left, right, bottom, top] = this.box;
    const fit = Math.min((this.width - 2 * MARGIN) / (right - left || 1), (this.height - 2 * MARGIN) / (top - bottom || 1));
    const by = fit * this.zoom;
    return { by, x: this.width / 2 + this.x - (by * (left + right)) / 2, y: this.height / 2 + this.y + (by * (bottom + top)) / 2 };
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = undefined;
    if (!this.states || !this.width) return;
    const pen = this.canvas.getContext("2d");
    const colors = getComputedStyle(this.canvas);
    const { by, x, y } = this.scale();
    const size = Math.max(2, Math.min(9, (150 * Math.sqrt(this.zoom)) / Math.sqrt(this.rows.length) + 1.5));
    pen.setTransform(this.density, 0, 0, this.density, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    // what matches last, and what is known after what is not, so that it is not covered
    const layers = [2, 0, 1, 2 | MATCHES, 0 | MATCHES, 1 | MATCHES];
    for (const layer of layers) {
      const side = (layer & 3) === 1 ? 1.3 * size : size; // what is present is what one looks for
      pen.fillStyle = colors.getPropertyValue(layer & MATCHES ? `--${STATES[layer & 3]}` : "--faded");
      pen.globalAlpha = layer & MATCHES ? 0.75 : 0.5;
      for (let at = 0; at < this.rows.length; at++) {
        if (this.states[at] !== layer) continue;
        const left = x + by * this.xs[at], top = y - by * this.ys[at];
        if (left < -size || top < -size || left > this.width + size || top > this.height + size) continue;
        pen.fillRect(left - side / 2, top - side / 2, side, side);
      }
    }
    pen.globalAlpha = 1;
    if (this.pictures) this.drawPictures(pen, colors, x, y, by);
    this.ring(pen, colors, this.rows.indexOf(this.marked), x, y, by);
    this.ring(pen, colors, this.under ?? -1, x, y, by);
  }

  ring(pen, colors, at, x, y, by) {
    if (at < 0) return;
    pen.beginPath();
    pen.arc(x + by * this.xs[at], y - by * this.ys[at], 9, 0, 2 * Math.PI);
    pen.lineWidth = 3;
    pen.strokeStyle = colors.getPropertyValue("--ink");
    pen.stroke();
  }

  // In each cell of the screen, the photo of the matching point that is nearest to its center.
  drawPictures(pen, colors, x, y, by) {
    const columns = Math.ceil(this.width / CELL);
    const best = new Map();
    for (let at = 0; at < this.rows.length; at++) {
      if (!(this.states[at] & MATCHES)) continue;
      const left = x + by * this.xs[at], top = y - by * this.ys[at];
      if (left < 0 || top < 0 || left >= this.width || top >= this.height) continue;
      const column = Math.floor(left / CELL), row = Math.floor(top / CELL);
      const distance = (left - (column + 0.5) * CELL) ** 2 + (top - (row + 0.5) * CELL) ** 2;
      const cell = row * columns + column;
      if (!(best.get(cell)?.distance <= distance)) best.set(cell, { at, distance, column, row });
    }
    for (const { at, column, row } of best.values()) {
      const image = this.image(this.rows[at]);
      const left = column * CELL + (CELL - PICTURE) / 2, top = row * CELL + (CELL - PICTURE) / 2;
      if (!image.complete || !image.naturalWidth) continue;
      const side = Math.min(image.naturalWidth, image.naturalHeight);
      pen.drawImage(image, (image.naturalWidth - side) / 2, (image.naturalHeight - side) / 2, side, side, left, top, PICTURE, PICTURE);
      pen.strokeStyle = colors.getPropertyValue(`--${STATES[this.states[at] & 3]}`);
      pen.lineWidth = 3;
      pen.strokeRect(left, top, PICTURE, PICTURE);
    }
  }

  image(row) {
    let image = this.images.get(row);
    if (!image) {
      image = new Image();
      image.onload = () => this.schedule();
      image.src = `/picture/${row}?side=160`;
    }
    this.images.delete(row);
    this.images.set(row, image); // the last one used is the last one dropped
    if (this.images.size > MAX_PICTURES) this.images.delete(this.images.keys().next().value);
    return image;
  }

  // The point that matches and is nearest to a place of the screen; -1 if none is near.
  find(left, top) {
    if (!this.states) return -1;
    const { by, x, y } = this.scale();
    let found = -1, least = REACH ** 2;
    for (let at = 0; at < this.rows.length; at++) {
      if (!(this.states[at] & MATCHES)) continue;
      const distance = (x + by * this.xs[at] - left) ** 2 + (y - by * this.ys[at] - top) ** 2;
      if (distance < least) [found, least] = [at, distance];
    }
    return found;
  }

  // Show the photo of a point beside it; -1 shows none.
  point(at) {
    if (at === (this.under ?? -1)) return;
    this.under = at;
    this.hint.hidden = at < 0;
    this.canvas.style.cursor = at < 0 ? "" : "pointer";
    this.schedule();
    if (at < 0) return;
    const { by, x, y } = this.scale();
    const left = x + by * this.xs[at], top = y - by * this.ys[at];
    const image = this.hint.querySelector("img");
    image.removeAttribute("src"); // the last photo must not be shown until this one is there
    image.src = `/picture/${this.rows[at]}?side=160`;
    this.hint.dataset.row = this.rows[at];
    this.hint.style.left = `${left + (left > this.width - 200 ? -176 : 16)}px`;
    this.hint.style.top = `${Math.max(8, Math.min(this.height - 176, top - 80))}px`;
  }

  onWheel(event) {
    event.preventDefault();
    this.point(-1);
    this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.offsetX, event.offsetY);
  }

  onDown(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, y: event.offsetY, far: false };
  }

  onMove(event) {
    const { drag } = this;
    if (!drag) return this.point(this.find(event.offsetX, event.offsetY));
    const [x, y] = [event.offsetX - drag.x, event.offsetY - drag.y];
    if (!drag.far && Math.hypot(x, y) < DRAGGED) return;
    this.point(-1);
    this.drag = { x: event.offsetX, y: event.offsetY, far: true };
    this.move(x, y);
  }

  onUp(event) {
    const { drag } = this;
    this.drag = undefined;
    if (!drag || drag.far) return;
    const at = this.find(event.offsetX, event.offsetY);
    if (at >= 0) this.onOpen(this.rows[at]);
  }
}

function range(values) {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return [least, most];
}
