// Requests that the server has not confirmed. They are kept in the browser's storage until the server has them on disk,
// survive a reload, and are sent again after a failure; the server counts each of them once. What the server refuses is
// kept too, with the reason, until the reviewer decides again, discards it, or sends it again; a reload sends it again.

const PREFIX = "tagfill-review/";
const MAX_BATCH = 50;
const REFUSALS = [400, 404, 405, 409, 413, 422]; // sending the same request again would not help

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const samePair = (one, other) => one.image === other.image && one.label === other.label;

class Refusal extends Error {}

export class Queue {
  // onConfirmed: called with (statuses, newest); onChange: called with (problem, refused entry);
  // onDrop: called with the id of a refused request that was dropped.
  constructor(dataset, onConfirmed, onChange, onDrop) {
    Object.assign(this, { prefix: `${PREFIX}${dataset}/`, onConfirmed, onChange, onDrop });
    this.busy = false;
    this.problem = null; // why nothing can be sent at the moment
    this.pause = 250;
    this.alone = 0; // requests that are sent one by one, after the server refused them together
    this.count = 0;
    this.refused = []; // entries with a reason
    this.waiting = Object.keys(localStorage)
      .filter((key) => key.startsWith(this.prefix))
      .sort()
      .map((key) => ({ key, ...JSON.parse(localStorage.getItem(key)) }));
    if (this.waiting.length) this.send();
  }

  add(address, body) {
    const order = `${Date.now().toString(36).padStart(9, "0")}-${(this.count++).toString(36).padStart(6, "0")}`;
    const entry = { key: `${this.prefix}${order}-${body.id}`, address, body };
    this.store(entry);
    if (address === "/api/decisions") this.drop(this.refusedAbout(body)); // the reviewer decided again
    this.waiting.push(entry);
    this.onChange(this.problem);
    this.send();
  }

  // Whether a decision about this pair of image and label is not confirmed yet.
  has({ image, label }) {
    return this.waiting.some(({ body }) => samePair(body.pair ?? body, { image, label }));
  }

  // Why a decision about this pair was not saved, or undefined.
  reason(pair) {
    return this.refusedAbout(pair)[0]?.reason;
  }

  // Drop a refused request; false if there is none with this id.
  withdraw(id) {
    const found = this.refused.filter(({ body }) => body.id === id);
    this.drop(found);
    if (found.length) this.onChange(this.problem);
    return found.length > 0;
  }

  sendAgain() {
    this.waiting = [...this.refused, ...this.waiting].sort((one, other) => (one.key < other.key ? -1 : 1));
    this.refused = [];
    this.onChange(this.problem);
    this.send();
  }

  discard() {
    this.drop(this.refused);
    this.onChange(this.problem);
  }

  async send() {
    if (this.busy || !this.waiting.length) return;
    this.busy = true;
    const batch = this.batch();
    try {
      const answer = await this.post(batch);
      this.pause = 250;
      this.problem = null;
      this.settle(batch, answer);
    } catch (error) {
      if (error instanceof Refusal) {
        this.problem = null;
        if (batch.length > 1) this.alone = batch.length; // which of them is refused?
        else this.refuse(batch[0], error.message);
      } else {
        this.problem = error.message;
        this.onChange(this.problem);
        await new Promise((resolve) => setTimeout(resolve, this.pause));
        this.pause = Math.min(5000, 2 * this.pause);
      }
    }
    this.busy = false;
    this.send();
  }

  // Decisions about different pairs are sent together; everything else is sent alone, to keep the order.
  batch() {
    const [first] = this.waiting;
    if (this.alone > 0) {
      this.alone--;
      return [first];
    }
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
    const reply = await response.json().catch(() => ({}));
    if (REFUSALS.includes(response.status)) throw new Refusal(reply.error ?? `The server refused it (${response.status}).`);
    if (!response.ok) throw new Error(reply.error ?? `The server responded with status ${response.status}. Trying again.`);
    if (!Array.isArray(reply.statuses)) throw new Error("The server did not confirm. Trying again.");
    return reply;
  }

  // Each decision of a batch is confirmed or refused by itself; the other requests are confirmed as a whole.
  settle(batch, { statuses, newest }) {
    const answers = new Map(statuses.map((now) => [now.id, now]));
    const decisions = batch[0].address === "/api/decisions";
    if (decisions && !batch.every(({ body }) => answers.has(body.id))) {
      throw new Error("The server did not confirm. Trying again.");
    }
    const refused = [];
    for (const entry of batch) {
      const now = decisions ? answers.get(entry.body.id) : {};
      const agrees = now.decision && now.decision.present === entry.body.present; // another reviewer decided the same
      if (now.refused && !agrees) refused.push([entry, now.refused]);
      else this.forget([entry]);
    }
    for (const now of statuses) {
      if (now.refused) continue; // a later decision about the pair has not seen the newest one either
      for (const entry of this.waiting) {
        if (!("seen" in entry.body) || !samePair(entry.body, now) || entry.body.seen === now.number) continue;
        entry.body.seen = now.number;
        this.store(entry);
      }
    }
    for (const [entry, reason] of refused) this.refuse(entry, reason);
    this.onConfirmed(statuses, newest);
    this.onChange(null);
  }

  refuse(entry, reason) {
    this.waiting = this.waiting.filter((other) => other !== entry);
    const undone = this.refused.filter(({ body }) => entry.address === "/api/undo" && body.id === entry.body.undoes);
    const decision = entry.address === "/api/decisions";
    if (decision) this.drop(this.refusedAbout(entry.body));
    if (undone.length) {
      this.drop([...undone, entry]); // a decision that was not saved needs no undoing
      this.onChange(null);
    } else if (decision && this.waiting.some((one) => one.address === entry.address && samePair(one.body, entry.body))) {
      this.drop([entry]); // the reviewer has decided again
    } else {
      this.refused.push({ ...entry, reason });
      this.onChange(null, this.refused.at(-1));
    }
  }

  refusedAbout(pair) {
    return this.refused.filter(({ address, body }) => address === "/api/decisions" && samePair(body, pair));
  }

  drop(entries) {
    this.forget(entries);
    for (const { body } of entries) this.onDrop(body.id);
  }

  forget(entries) {
    const keys = new Set(entries.map(({ key }) => key));
    for (const key of keys) localStorage.removeItem(key);
    this.waiting = this.waiting.filter(({ key }) => !keys.has(key));
    this.refused = this.refused.filter(({ key }) => !keys.has(key));
  }

  store({ key, address, body }) {
    try {
      localStorage.setItem(key, JSON.stringify({ address, body }));
    } catch {
      // the storage is full: the request is sent all the same, but would not survive a reload
    }
  }
}
