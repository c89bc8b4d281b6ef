// A picture, drawn where it is shown. Each message holds the whole picture, so that none is missed.

import { html } from "./dom.js";
import { plain } from "./fields.js";
import { frameOf } from "./frame.js";
import { matchParts } from "./parts.js";

const LOOK_EVERY_MS = 2000;
const LENGTH_S = 300;

class Shown {
  constructor(model, el) {
    this.model = model;
    this.host = el.appendChild(html("div"));
    const shadow = this.host.attachShadow({ mode: "open" });
    shadow.adoptedStyleSheets = [styleSheet()];
    this.text = null; // of the picture that is shown
    this.picture = null;
    this.parts = [];
    this.length = null; // of the window that follows the present, in seconds
    this.pausedAt = null;
    this.pointedAt = null;
    this.heardAt = seconds();
    this.nextFrame = 0;
    this.frame = frameOf(this);
    this.frame.root.hidden = true; // until there is something in it
    shadow.append(this.frame.root);
    this.listen();
    this.draw();
  }

  listen() {
    const heard = () => {
      this.heardAt = seconds();
      this.later();
    };
    this.listeners = Object.entries({
      "change:picture": heard,
      "change:window": () => this.later(),
      "change:selected": () => this.later(),
      "change:asked": () => this.later(),
    });
    for (const [name, listener] of this.listeners) this.model.on(name, listener);
    this.sizes = new ResizeObserver(() => this.later());
    this.sizes.observe(this.frame.parts);
    this.clock = setInterval(() => this.tell(), LOOK_EVERY_MS);
  }

  close() {
    for (const [name, listener] of this.listeners) this.model.off(name, listener);
    this.sizes.disconnect();
    clearInterval(this.clock);
    cancelAnimationFrame(this.nextFrame);
    this.host.remove();
  }

  // -------------------------------------------------------------- what is drawn

  later() {
    this.nextFrame ||= requestAnimationFrame(() => {
      this.nextFrame = 0;
      this.draw();
    });
  }

  draw() {
    const latest = this.model.get("picture");
    if (latest && latest !== this.text && (this.pausedAt === null || this.picture === null)) {
      this.picture = pictureOf(latest);
      this.text = latest;
    }
    if (this.picture === null) return;
    this.frame.root.hidden = false;
    const { activeElement: focused } = this.host.shadowRoot;
    const zoom = zoomOf(this.model);
    this.length = windowOf(this.model).length_s ?? this.length;
    const { pausedAt } = this;
    this.frame.draw(this.picture, { pausedAt, zoomed: zoom !== null, length: this.length });
    this.tell();
    this.parts = matchParts(this.frame.parts, this.parts, this.picture.parts, this);
    const span = zoom ?? spanOf(this.picture, this.length);
    const widths = this.parts.map((part) => part.body.clientWidth);
    this.parts.forEach((part, place) => part.draw(widths[place], span));
    // What was clicked may be gone; keys are still meant for this picture.
    if (focused !== null && !focused.isConnected) this.frame.root.focus({ preventScroll: true });
  }

  // Its state in words, which changes when nothing comes, too.
  tell() {
    if (this.picture === null) return;
    const { pausedAt, heardAt } = this;
    const zoomed = zoomOf(this.model) !== null;
    this.frame.tell(this.picture, { pausedAt, zoomed, heardAt, now: seconds() });
  }

  // -------------------------------------------------------------- what the reader does

  put(changes) {
    this.pause(null);
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
    this.later();
  }

  // Who sends pictures may rest meanwhile, if it knows the trait `paused`.
  pause(time) {
    if (this.pausedAt === time) return;
    this.pausedAt = time;
    this.model.set("paused", time !== null);
    this.model.save_changes();
    this.later();
  }

  followOrPause() {
    if (this.pausedAt !== null) this.pause(null);
    else if (zoomOf(this.model)) this.show(this.length ?? LENGTH_S);
    else this.pause(this.picture?.span_s?.[1] ?? seconds());
  }

  show(length) {
    this.put({ window: { length_s: length } });
  }

  zoom(from, to) {
    this.put({ window: { start_s: from, end_s: to } });
  }

  act(name) {
    this.put({ selected: name === "back" ? "" : name });
  }

  // Another one is read from its beginning.
  choose(key) {
    const { turn, ...asked } = this.asked();
    this.put({ selected: key, ...(turn ? { asked } : {}) });
  }

  // What is found from now on begins with its first page.
  ask(changes) {
    this.put({ asked: { ...this.asked(), page: "0", ...changes } });
  }

  step({ selected, asked }) {
    const chosen = selected === null ? {} : { selected };
    this.put({ ...chosen, asked: { ...this.asked(), ...Object.fromEntries(asked) } });
  }

  asked() {
    return plain(this.model.get("asked"));
  }

  chosen() {
    return this.model.get("selected");
  }

  point(time) {
    this.pointedAt = time;
    for (const part of this.parts) part.hover(time);
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

function windowOf(model) {
  return plain(model.get("window"));
}

// Charts without times have those of the chart before.
function pictureOf(text) {
  const picture = JSON.parse(text);
  let times = [];
  for (const part of picture.parts) {
    if (part.kind === "lines") times = part.times_s ??= times;
  }
  return picture;
}

function zoomOf(model) {
  const { start_s: start, end_s: end } = windowOf(model);
  return start === undefined || end === undefined ? null : [start, end];
}

// At once what was asked for, from what is there, until a picture comes that was made for it.
function spanOf(picture, length) {
  if (picture.span_s === null) return null;
  const [start, end] = picture.span_s;
  return [length === null ? start : end - length, end];
}

function render({ model, el }) {
  const shown = new Shown(model, el);
  return () => shown.close();
}

export default { render };
