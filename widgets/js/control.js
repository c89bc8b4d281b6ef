// The panel that manages a pool. What it asks and hears is told in widgets/control/clerk.py.

import { name } from "./asking.js";
import { html, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";
import { poolTools } from "./pooltools.js";
import { replicaRow } from "./replicarow.js";

const LOOK_EVERY_MS = 1000;
const QUIET_S = 10;
const PATIENCE_S = 10;
const SETTLE_S = 3;

class Shown {
  constructor(model, el) {
    this.model = model;
    this.host = el.appendChild(html("div", { "data-lm-suppress-shortcuts": "true" }));
    const shadow = this.host.attachShadow({ mode: "open" });
    shadow.adoptedStyleSheets = [styleSheet()];
    this.mine = {}; // what was not answered yet, by id
    this.asked = new Map(); // orders that are not seen in the panel yet, by id
    this.replies = { told: {}, logs: {} };
    this.rows = new Map();
    this.lines = new Map(); // of what was asked, by id
    this.ends = new Map(); // when an order was seen to have ended, by id
    this.order = "";
    this.heardAt = seconds();
    this.build();
    shadow.append(this.root);
    this.listeners = Object.entries({
      "change:picture": () => this.draw(),
      "change:replies": () => this.hear(),
    });
    for (const [name, listener] of this.listeners) model.on(name, listener);
    this.clock = setInterval(() => this.look(), LOOK_EVERY_MS);
    this.hear();
    this.draw();
  }

  close() {
    for (const [name, listener] of this.listeners) this.model.off(name, listener);
    clearInterval(this.clock);
    this.host.remove();
  }

  build() {
    this.title = html("h3");
    this.status = html("span", { class: "status", role: "status" });
    this.words = html("span", { class: "words" });
    this.error = html("p", { class: "error", role: "alert", hidden: "" });
    this.notice = html("p", { class: "error notice", role: "alert", hidden: "" });
    this.tools = poolTools(this);
    this.done = html("ol", { class: "done", "aria-label": "what was asked", "aria-live": "polite" });
    const heads = ["replica", "state", "stage or error", "version", "restarts", "in flight", ""];
    const head = html("tr", {}, ...heads.map((name, place) =>
      html("th", { scope: "col", class: place > 2 && place < 6 ? "number" : "" }, name)));
    this.table = html("table", { class: "replicas" }, html("thead", {}, head));
    this.more = html("p", { class: "note" });
    const scroll = html("div", { class: "scroll", role: "group", "aria-label": "replicas" }, this.table);
    const header = html("header", {}, this.title, this.status, this.words);
    this.root = html("section", { class: "picture control", hidden: "" },
      header, this.error, this.notice, this.tools.root, this.done, scroll, this.more);
  }

  // -------------------------------------------------------------- what is drawn

  draw() {
    const text = this.model.get("picture");
    if (!text) return;
    if (text !== this.text) {
      this.text = text;
      this.picture = JSON.parse(text);
      this.heardAt = seconds();
    }
    this.root.hidden = false;
    setAttribute(this.root, "aria-label", this.picture.title);
    setText(this.title, this.picture.title);
    setText(this.words, this.picture.words ?? "");
    setText(this.error, this.picture.error);
    this.error.hidden = !this.picture.error;
    this.tell();
    const { control } = this.picture;
    if (!control) return;
    for (const { id } of control.done) this.asked.delete(id);
    this.noteEnds(control.done);
    this.tools.draw(control);
    this.drawDone(control);
    this.drawRows(control);
    setText(this.more, control.more);
    this.more.hidden = !control.more;
  }

  tell() {
    const { status } = this.picture;
    const quiet = status === "live" && seconds() - this.heardAt > QUIET_S;
    setText(this.status, quiet ? `no news since ${clock(this.heardAt)}` : status);
    this.status.classList.toggle("live", status === "live" && !quiet);
  }

  drawDone({ done }) {
    const lines = done.map((entry) => {
      const line = this.lines.get(entry.id) ?? new Line();
      line.draw(entry);
      return [entry.id, line];
    });
    const changed = lines.length !== this.lines.size || lines.some(([, line], place) =>
      this.done.children[place] !== line.root);
    this.lines = new Map(lines);
    if (changed) this.done.replaceChildren(...lines.map(([, line]) => line.root));
    this.done.hidden = done.length === 0;
  }

  drawRows(control) {
    const ids = control.rows.map((row) => row.id);
    for (const id of this.rows.keys()) if (!ids.includes(id)) this.rows.delete(id);
    for (const id of ids) if (!this.rows.has(id)) this.rows.set(id, replicaRow(this, id));
    const bodies = ids.map((id) => this.rows.get(id).body);
    if (this.order !== ids.join("\n")) {
      this.order = ids.join("\n");
      for (const old of this.table.querySelectorAll("tbody")) old.remove();
      this.table.append(...bodies);
    }
    control.rows.forEach((row) => this.rows.get(row.id).draw(row, control.closed));
    this.table.classList.toggle("none", ids.length === 0);
  }

  // -------------------------------------------------------------- what is asked

  // Nothing comes of a second click: one order at a time about the same.
  ask(about, message) {
    if (this.waitsFor(about)) return;
    const id = name();
    this.asked.set(id, { about, message, at: seconds(), stage: "asked" });
    this.warn("");
    this.send(id, message);
    this.draw();
  }

  send(id, message) {
    this.mine[id] = message;
    this.push();
  }

  push() {
    this.model.set("asks", JSON.stringify(this.mine));
    this.model.save_changes();
  }

  hear() {
    const text = this.model.get("replies");
    if (!text) return;
    this.replies = JSON.parse(text);
    const { told } = this.replies;
    let changed = false;
    for (const id of Object.keys(this.mine)) {
      if (told[id] === undefined) continue;
      if (this.mine[id].log && told[id] !== "reads") this.warn(told[id]);
      delete this.mine[id];
      changed = true;
    }
    for (const [id, order] of this.asked) changed = this.follow(id, order, told) || changed;
    if (changed) this.push();
    if (this.picture) this.draw();
  }

  // Whether there is something to send.
  follow(id, order, told) {
    if (order.stage === "asked" && told[id] !== undefined) {
      if (told[id] !== "ready") return this.fail(id, told[id]);
      order.stage = "going";
      order.at = seconds();
      this.mine[`${id}-go`] = { go: id };
      return true;
    }
    const answer = told[`${id}-go`];
    if (order.stage !== "going" || answer === undefined) return false;
    if (answer !== "taken") return this.fail(id, answer);
    order.stage = "taken";
    order.at = seconds();
    return false;
  }

  fail(id, why) {
    this.asked.delete(id);
    this.warn(why);
    return true;
  }

  look() {
    for (const [id, order] of this.asked) {
      if (seconds() - order.at < PATIENCE_S) continue;
      if (order.stage === "taken") this.asked.delete(id);
      if (order.stage !== "asked") continue;
      delete this.mine[id];
      this.push();
      this.fail(id, `Not done: nobody answered within ${PATIENCE_S} s. A cell may be running whose
        kernel hears no click meanwhile: ask again, or use the control page of a dashboard.`.replace(/\s+/g, " "));
    }
    if (this.picture) this.draw();
  }

  warn(text) {
    setText(this.notice, text);
    this.notice.hidden = !text;
  }

  waitsFor(about) {
    return [...this.asked.values()].some((order) => order.about === about);
  }

  // What was asked, or is done while the figures do not show it yet.
  verbAsked(about) {
    const asked = [...this.asked.values()].find((order) => order.about === about);
    return asked?.message.verb ?? this.verbSettling(about);
  }

  verbSettling(about) {
    const { done, time_s: figures } = this.picture.control;
    const found = done.find((one) => one.tone === "good" && ["", about].includes(one.about)
      && one.ended_s > figures && seconds() - this.ends.get(one.id) < SETTLE_S);
    return found?.verb ?? "";
  }

  noteEnds(done) {
    const ended = done.filter((one) => one.ended_s !== null);
    this.ends = new Map(ended.map(({ id }) => [id, this.ends.get(id) ?? seconds()]));
  }

  // One question at a time.
  question(question) {
    this.open?.close();
    this.open = question;
  }
}

// What came of an order; what is longer than a line can be opened.
class Line {
  constructor() {
    this.texts = ["time", "what", "text"].map((name) => html("span", { class: name }));
    this.rest = html("pre");
    this.more = html("details", { hidden: "" }, html("summary", {}, "more"), this.rest);
    this.root = html("li", {}, ...this.texts, this.more);
  }

  draw({ time, what, text, more, tone }) {
    setAttribute(this.root, "class", tone);
    [time, what, text].forEach((shown, place) => setText(this.texts[place], shown));
    setText(this.rest, more);
    this.more.hidden = !more;
  }
}

function seconds() {
  return Date.now() / 1000;
}

let sheet = null;

function styleSheet() {
  if (sheet === null) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
  }
  return sheet;
}

function render({ model, el }) {
  const shown = new Shown(model, el);
  return () => shown.close();
}

export default { render };
