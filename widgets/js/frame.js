// What surrounds the parts: title, status, error, and what can be asked for.

import { html, setAttribute, setText } from "./dom.js";
import { fieldOf } from "./fields.js";
import { clock } from "./format.js";

const WINDOWS = [["1 min", 60], ["5 min", 300], ["15 min", 900], ["1 h", 3600], ["1 day", 86400]];
const QUIET_S = 10;

export function frameOf(reader) {
  const title = html("h3");
  const status = html("span", { class: "status", role: "status" });
  const error = html("p", { class: "error", role: "alert", hidden: "" });
  const words = html("div", { class: "parts" });
  const tools = toolbarOf(reader);
  const header = html("header", {}, title, status, tools.bar);
  const ways = stepsOf(reader);
  const form = formOf(reader);
  const inside = [header, ways.bar, form.bar, error, words];
  const root = html("section", { class: "picture" }, ...inside);
  root.addEventListener("keydown", (event) => ways.press(event));
  return {
    root,
    parts: words,
    draw(picture, state) {
      setAttribute(root, "aria-label", picture.title);
      setText(title, picture.title);
      setText(error, picture.error);
      error.hidden = !picture.error;
      // Charts are one picture in words; what can be operated stays reachable.
      const reachable = picture.parts.some((part) => ["table", "tokens"].includes(part.kind));
      setAttribute(words, "role", reachable ? "group" : "img");
      setAttribute(words, "aria-label", picture.words || picture.title);
      tools.draw(picture, state);
      ways.draw(picture.steps ?? []);
      form.draw(picture.fields ?? []);
      // A click anywhere in it is enough for its keys.
      setAttribute(root, "tabindex", ways.bar.hidden ? null : "-1");
    },
    tell(picture, state) {
      const text = statusOf(picture, state);
      setText(status, text);
      status.hidden = !text;
      status.classList.toggle("live", text === "live");
    },
  };
}

// Live is who sends: a kernel that is gone says nothing any more.
function statusOf(picture, { pausedAt, zoomed, heardAt, now }) {
  if (pausedAt !== null) return `paused at ${clock(pausedAt)}`;
  const moves = picture.status === "live" && picture.span_s !== null && !zoomed;
  const quiet = moves && now - heardAt > QUIET_S;
  return quiet ? `no news since ${clock(heardAt)}` : picture.status;
}

function toolbarOf(reader) {
  const bar = html("div", { class: "toolbar", role: "toolbar", "aria-label": "what is shown" });
  const windows = html("span", { class: "windows", role: "group", "aria-label": "time window" });
  const lengths = WINDOWS.map(([name, length]) => {
    const pick = button(name, `show the last ${name}`, () => reader.show(length));
    windows.append(pick);
    return [length, pick];
  });
  const still = button("", "", () => reader.followOrPause());
  const actions = html("span", { class: "actions" });
  bar.append(actions, windows, still);
  return {
    bar,
    draw(picture, { pausedAt, zoomed, length }) {
      const moves = picture.status === "live";
      const timed = picture.span_s !== null;
      for (const [size, pick] of lengths) {
        setAttribute(pick, "aria-pressed", String(size === length && !zoomed));
      }
      windows.hidden = !timed;
      const follow = pausedAt !== null || zoomed;
      setText(still, follow ? "Follow" : "Pause");
      setAttribute(still, "aria-label", follow ? "follow what happens" : "keep this picture still");
      still.hidden = !(moves || follow);
      drawActions(actions, picture.actions, reader);
      bar.hidden = windows.hidden && still.hidden && picture.actions.length === 0;
    },
  };
}

// Ways on from here. The buttons stay while what they lead to changes, and so does the focus.
function stepsOf(reader) {
  const bar = html("div", { class: "steps", role: "toolbar", "aria-label": "ways on" });
  let steps = [];
  const leads = (step) => step.selected !== null || step.asked.length > 0;
  const take = (step) => {
    if (step && leads(step)) reader.step(step);
  };
  return {
    bar,
    draw(given) {
      steps = given;
      while (bar.children.length > steps.length) bar.lastChild.remove();
      while (bar.children.length < steps.length) {
        const place = bar.children.length;
        bar.append(button("", "", () => take(steps[place])));
      }
      steps.forEach((step, place) => {
        const made = bar.children[place];
        setText(made, [step.label, arrowsOf(step.key)].filter(Boolean).join(" "));
        setAttribute(made, "aria-label", step.label);
        setAttribute(made, "aria-disabled", String(!leads(step)));
        setAttribute(made, "aria-keyshortcuts", step.key || null);
        setAttribute(made, "title", step.key ? `key: ${step.key}` : null);
      });
      bar.hidden = steps.length === 0;
    },
    press(event) {
      const typing = event.composedPath()[0].matches?.("input, select, .tokens");
      if (typing || event.altKey || event.ctrlKey || event.metaKey) return;
      const key = (event.shiftKey ? "Shift+" : "") + event.key;
      const step = steps.find((one) => one.key === key);
      if (step === undefined) return;
      event.preventDefault();
      take(step);
    },
  };
}

const ARROWS = { ArrowLeft: "←", ArrowRight: "→", "Shift+ArrowLeft": "⇧←", "Shift+ArrowRight": "⇧→" };

function arrowsOf(key) {
  return ARROWS[key] ?? "";
}

// Fields are made anew only where others are wanted: nobody loses what they are typing.
function formOf(reader) {
  const bar = html("div", { class: "fields", role: "search" });
  let made = "";
  let parts = [];
  return {
    bar,
    draw(fields) {
      const wanted = JSON.stringify(fields.map(({ name, kind, label, options }) => [name, kind, label, options]));
      if (wanted !== made) {
        made = wanted;
        parts = fields.map((field) => fieldOf(field, (value) => reader.ask({ [field.name]: value })));
        bar.replaceChildren(...parts.map((part) => part.root));
      }
      const asked = reader.asked();
      fields.forEach((field, place) => parts[place].draw(asked[field.name] ?? "", field));
      bar.hidden = fields.length === 0;
    },
  };
}

function drawActions(actions, names, reader) {
  if (actions.dataset.names === names.join("\n")) return;
  actions.dataset.names = names.join("\n");
  actions.replaceChildren(...names.map((name) => button(name, name, () => reader.act(name))));
}

function button(text, label, pressed) {
  const made = html("button", { type: "button", "aria-label": label }, text);
  made.addEventListener("click", pressed);
  return made;
}
