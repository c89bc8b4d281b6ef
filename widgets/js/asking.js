// Buttons that may not be pressed just now, and questions before something is interrupted.

import { html, setAttribute } from "./dom.js";

export const MODES = {
  keep: "keep: freeze requests, which go on afterwards",
  abort: "abort: end requests with the tokens they have",
  wait: "wait: let requests that run end first",
};

export function question(...given) {
  new Question(...given);
}

class Question {
  constructor(panel, place, about, text, answers, more, changed) {
    panel.question(this);
    this.panel = panel;
    this.place = place;
    this.changed = changed ?? (() => {});
    this.before = place.getRootNode().activeElement;
    const words = html("p", {}, text);
    const yes = answers.map(([label, message]) => button(label, () => {
      const order = typeof message === "function" ? message() : message;
      this.close();
      panel.ask(about, { ...order, confirmed: true });
    }));
    yes[0].classList.add("sure");
    const no = button("Leave it", () => this.close());
    const box = html("div", { class: "question", role: "alertdialog", "aria-label": text },
      words, ...more, html("span", { class: "group" }, ...yes, no));
    box.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    place.replaceChildren(box);
    this.changed();
    no.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
  }

  close() {
    if (this.panel.open === this) this.panel.open = null;
    this.place.replaceChildren();
    this.changed();
    this.before?.focus?.({ preventScroll: true });
  }
}

// One that cannot be pressed can still be reached, and says why.
export function offer(made, why, runs) {
  setAttribute(made, "aria-disabled", String(Boolean(why)));
  setAttribute(made, "title", why);
  setAttribute(made, "aria-busy", String(Boolean(runs)));
}

export function button(text, pressed) {
  const made = html("button", { type: "button" }, text);
  made.addEventListener("click", () => {
    if (made.getAttribute("aria-disabled") !== "true") pressed();
  });
  return made;
}

export function choice(options) {
  return html("select", {}, ...Object.entries(options).map(([value, text]) => html("option", { value }, text)));
}

export function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

export function name() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
