// Requests that the server has not confirmed yet. They are kept in the browser's storage until the server has them on
// disk, survive a reload, and are sent again after a failure; the server counts each of them once.

const PREFIX = "tagfill-review/";
const MAX_BATCH = 50;

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const samePair = (one, other) => one.image === other.image && one.label === other.label;

export class Queue {
  // onConfirmed: called with (statuses, newest); onChange: called with (waiting, problem, refusal).
  constructor(dataset, onConfirmed, onChange) {
    this.prefix = `${PREFIX}${dataset}/`;
    this.onConfirmed = onConfirmed;
    this.onChange = onChange;
    this.busy = false;
    this.pause = 250;
    this.waiting = Object.keys(localStorage)
      .filter((key) => key.startsWith(this.prefix))
      .sort()
      .map((key) => ({ key, ...JSON.parse(localStorage.getItem(key)) }));
    this.count = 0;
    if (this.waiting.length) this.send();
  }

  add(address, body) {
    const order = `${Date.now().toString(36).padStart(9, "0")}-${(this.count++).toString(36).padStart(6, "0")}`;
    const entry = { key: `${this.prefix}${order}-${body.id}`, address, body };
    localStorage.setItem(entry.key, JSON.stringify({ address, body }));
    this.waiting.push(entry);
    this.onChange(this.waiting.length, null);
    this.send();
  }

  // Whether a decision about this pair of image and label is not confirmed yet.
  has({ image, label }) {
    return this.waiting.some(({ body }) => samePair(body.pair ?? body, { image, label }));
  }

  async send() {
    if (this.busy || !this.waiting.length) return;
    this.busy = true;
    const batch = this.batch();
    try {
      const answer = await this.post(batch);
      this.pause = 250;
      this.done(batch);
      if (answer) {
        for (const now of answer.statuses) {
          for (const { body } of this.waiting) if ("seen" in body && samePair(body, now)) body.seen = now.number;
        }
        this.onConfirmed(answer.statuses, answer.newest);
      }
      this.onChange(this.waiting.length, null);
    } catch (error) {
      this.onChange(this.waiting.length, error.message);
      await new Promise((resolve) => setTimeout(resolve, this.pause));
      this.pause = Math.min(5000, 2 * this.pause);
    }
    this.busy = false;
    this.send();
  }

  // Decisions about different pairs are sent together; everything else is sent alone, to keep the order.
  batch() {
    const [first] = this.waiting;
    if (first.address !== "/api/decisions") return [first];
    const batch = [];
    for (const entry of this.waiting) {
      if (entry.address !== first.address || entry.body.who !== first.body.who || batch.length === MAX_BATCH) break;
      if (batch.some(({ body }) => samePair(body, entry.body))) break;
      batch.push(entry);
    }
    return batch;
  }

  async post(batch) {
    const [{ address, body }] = batch;
    const content =
      address === "/api/decisions"
        ? { who: body.who, decisions: batch.map(({ body: { who, ...rest } }) => rest) }
        : (({ pair, place, ...rest }) => rest)(body);
    let response;
    try {
      response = await fetch(address, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(content),
      });
    } catch {
      throw new Error("The server does not respond. Trying again.");
    }
    if (response.ok) return response.json();
    const reply = await response.json().catch(() => ({}));
    if (response.status === 409 || response.status === 404 || response.status === 422) {
      this.onChange(this.waiting.length, null, reply.error ?? "The server refused a decision.");
      return null; // sending it again would not help
    }
    throw new Error(reply.error ?? `The server responded with status ${response.status}. Trying again.`);
  }

  done(batch) {
    for (const entry of batch) localStorage.removeItem(entry.key);
    this.waiting = this.waiting.filter((entry) => !batch.includes(entry));
  }
}
