// One replica: how it is, what can be asked of it, the end of its log.

import { button, name, offer, question } from "./asking.js";
import { html, setAttribute, setText } from "./dom.js";
import { clock } from "./format.js";

const SLOTS = [["drain", "readmit"], ["pause", "resume"], ["restart"]];
const NAMES = {
  drain: "Drain", readmit: "Take back", pause: "Pause", resume: "Resume", restart: "Restart",
};

export function replicaRow(panel, id) {
  return new Row(panel, id);
}

class Row {
  constructor(panel, id) {
    this.panel = panel;
    this.id = id;
    const labels = ["replica", "state", "stage or error", "version", "restarts", "in flight"];
    this.cells = labels.map((label, place) =>
      html("td", { "data-label": label, class: place > 2 ? "number" : "" }));
    this.cells[0].className = "who";
    this.cells[2].className = "stage";
    this.state = html("span");
    this.cells[1].append(this.state);
    this.buttons = SLOTS.map((verbs) => {
      const made = button(NAMES[verbs[0]], () => this.press(made.dataset.verb));
      return made;
    });
    this.log = button("Log", () => this.toggleLog());
    const actions = html("td", { class: "actions" },
      html("span", { class: "group", role: "group", "aria-label": id }, ...this.buttons, this.log));
    this.place = html("div", { class: "place" });
    this.tail = new Tail(panel, id);
    this.below = html("tr", { class: "below", hidden: "" },
      html("td", { colspan: "7" }, this.place, this.tail.root));
    this.body = html("tbody", {}, html("tr", {}, ...this.cells, actions), this.below);
  }

  draw(row, closed) {
    this.row = row;
    const stage = [row.busy, row.note].filter(Boolean).join("; ");
    const texts = [row.name, null, stage, row.version, row.restarts, row.in_flight];
    texts.forEach((text, place) => text !== null && setText(this.cells[place], text));
    setAttribute(this.cells[2], "title", stage);
    setText(this.state, row.state);
    setAttribute(this.state, "class", `state ${row.tone}`);
    const sent = this.panel.verbAsked(this.id);
    const runs = sent || row.runs;
    const why = closed || row.busy || (sent ? "asked, until the figures show it" : "");
    SLOTS.forEach((verbs, place) => {
      const verb = verbs.find((one) => one === runs) ?? verbs.find((one) => row.can.includes(one));
      const shown = verb ?? verbs[0];
      const made = this.buttons[place];
      made.dataset.verb = shown;
      setText(made, NAMES[shown]);
      setAttribute(made, "aria-label", `${NAMES[shown]} ${row.name}`);
      offer(made, why || (row.can.includes(shown) ? "" : `not while ${row.state}`), runs === shown);
    });
    setAttribute(this.log, "aria-label", `Log of ${row.name}`);
    this.drawBelow();
  }

  drawBelow() {
    const shows = this.tail.draw(this.panel.replies.logs[this.id], this.row);
    setAttribute(this.log, "aria-expanded", String(shows));
    this.below.hidden = !shows && !this.place.hasChildNodes();
  }

  press(verb) {
    if (verb !== "restart") return this.panel.ask(this.id, { verb, replica_id: this.id });
    const order = { verb, replica_id: this.id };
    const text = `Restart ${this.row.name}? In flight there: ${this.row.in_flight}. Restarted now, they `
      + "go on elsewhere from the tokens they have; drained first, they end. Its KV cache is lost.";
    const answers = [["Restart now", order], ["Drain first, then restart", { ...order, drain: true }]];
    question(this.panel, this.place, this.id, text, answers, [], () => this.drawBelow());
  }

  toggleLog() {
    if (this.panel.replies.logs[this.id]) this.tail.leave();
    else this.tail.read();
  }
}

class Tail {
  constructor(panel, id) {
    this.panel = panel;
    this.id = id;
    this.when = html("span", { class: "when", role: "status" });
    this.again = button("Refresh", () => this.read());
    const close = button("Close", () => this.leave());
    this.error = html("p", { class: "error", role: "alert" });
    this.text = html("pre", { tabindex: "0", "aria-label": `log of ${id}` });
    const head = html("div", { class: "loghead" }, this.when, this.again, close);
    this.root = html("div", { class: "log", hidden: "" }, head, this.error, this.text);
  }

  read() {
    this.panel.send(name(), { log: this.id });
  }

  leave() {
    this.panel.send(name(), { close: this.id });
  }

  // Whether there is something to see.
  draw(tail, row) {
    this.root.hidden = !tail;
    if (!tail) return false;
    const read = tail.time_s === null ? "" : `last lines at ${clock(tail.time_s)}`;
    const path = row.log ? `of ${row.log}` : "";
    setText(this.when, [read || "reading…", path].filter(Boolean).join(" "));
    offer(this.again, tail.reads ? "it is being read" : "", tail.reads);
    setText(this.error, tail.error);
    this.error.hidden = !tail.error;
    this.text.hidden = Boolean(tail.error) || tail.time_s === null;
    const text = tail.text || "nothing in it yet";
    if (this.text.textContent !== text) {
      this.text.textContent = text;
      this.text.scrollTop = this.text.scrollHeight;
    }
    return true;
  }
}
