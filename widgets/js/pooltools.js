// What can be asked of the whole pool.

import { MODES, button, choice, counted, offer, question } from "./asking.js";
import { html, setAttribute } from "./dom.js";

const POOL = ""; // what an order is about that is not about one replica

export function poolTools(panel) {
  return new PoolTools(panel);
}

class PoolTools {
  constructor(panel) {
    this.panel = panel;
    this.count = html("input", { type: "number", min: "1", max: "10000", step: "1", "aria-label": "number of replicas" });
    this.scale = button("Scale", () => this.askToScale());
    this.count.addEventListener("keydown", (event) => event.key === "Enter" && this.scale.click());
    this.pause = button("Pause all", () => this.askToPause());
    this.resume = button("Resume all", () => panel.ask(POOL, { verb: "resume" }));
    this.publish = button("Publish weights…", () => this.openForm(this.form.hidden));
    setAttribute(this.publish, "aria-expanded", "false");
    this.form = this.buildForm();
    this.place = html("div", { class: "place" });
    const bar = html("div", { class: "tools", role: "toolbar", "aria-label": "the pool" },
      html("label", {}, "replicas", this.count), this.scale, this.pause, this.resume, this.publish);
    this.root = html("div", { class: "pool" }, bar, this.form, this.place);
  }

  buildForm() {
    this.source = html("input", { type: "text", placeholder: "/path/of/a/checkpoint", spellcheck: "false", autocomplete: "off" });
    this.version = html("input", { type: "number", min: "0", step: "1", placeholder: "next" });
    this.mode = choice(MODES);
    this.recompute = html("input", { type: "checkbox" });
    this.go = html("button", { type: "submit" }, "Publish");
    const form = html("form", { class: "publish", "aria-label": "new weights", hidden: "" },
      html("label", { class: "wide" }, "checkpoint directory", this.source),
      html("label", {}, "version", this.version),
      html("label", {}, "requests", this.mode),
      html("label", { class: "check" }, this.recompute, "compute kept caches anew"),
      this.go);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.go.getAttribute("aria-disabled") !== "true") this.askToPublish();
    });
    return form;
  }

  openForm(opens) {
    this.form.hidden = !opens;
    setAttribute(this.publish, "aria-expanded", String(opens));
    if (opens) this.source.focus();
    else this.panel.question(null);
  }

  askToScale() {
    const replicas = Number(this.count.value);
    const { replicas: present } = this.control;
    if (!Number.isInteger(replicas) || replicas < 1) {
      return this.panel.warn("replicas: a whole number from 1");
    }
    if (replicas === present) return this.panel.warn(`There are ${counted(present, "replica")} already.`);
    if (replicas > present) return this.panel.ask(POOL, { verb: "scale", replicas });
    const text = `Scale down from ${present} to ${replicas}? The newest leave first, once they have `
      + "finished what they have; their sessions move, and their KV caches are lost.";
    this.ask(text, [["Scale down", { verb: "scale", replicas }]]);
  }

  askToPause() {
    const mode = choice(MODES);
    const text = `Pause all ${counted(this.control.replicas, "replica")}? Nothing is generated until `
      + `somebody resumes them. In flight now: ${this.control.in_flight}.`;
    this.ask(text, [["Pause all", () => ({ verb: "pause", mode: mode.value })]],
      html("label", {}, "requests", mode));
  }

  askToPublish() {
    const source = this.source.value.trim();
    if (!source) return this.panel.warn("source: a checkpoint's directory is needed");
    const version = this.version.value === "" ? null : Number(this.version.value);
    const message = {
      verb: "publish", source, version, mode: this.mode.value, recompute: this.recompute.checked,
    };
    const becomes = {
      keep: "are frozen and go on with the new weights",
      abort: "end with the tokens they have",
      wait: "end first, while new ones wait",
    };
    const text = `Publish ${source} to ${counted(this.control.replicas, "replica")}? Each stands still `
      + `while it loads. Requests in flight (${this.control.in_flight}) ${becomes[message.mode]}.`;
    this.ask(text, [["Publish", message]]);
  }

  ask(text, answers, ...more) {
    question(this.panel, this.place, POOL, text, answers, more);
  }

  draw(control) {
    const known = this.control?.replicas;
    this.control = control;
    // What somebody typed stays.
    if (this.count.value === "" || this.count.value === String(known)) this.count.value = control.replicas;
    const sent = this.panel.verbAsked(POOL);
    const verb = sent || control.busy;
    const under = control.blocked.length ? `under way: ${control.blocked.join(", ")}` : "";
    const why = control.closed || (verb ? under || "asked" : "");
    const whole = why || under; // these concern every replica
    offer(this.scale, why, verb === "scale");
    offer(this.pause, whole, verb === "pause");
    offer(this.resume, whole || (control.paused ? "" : "none is paused"), verb === "resume");
    offer(this.go, whole, verb === "publish");
    offer(this.publish, control.closed, verb === "publish");
    this.count.disabled = Boolean(control.closed);
  }
}
