// A picture, drawn where it is shown. Each message holds the whole picture, so that none is missed.

import { barsPart } from "./bars.js";
import { html, setText } from "./dom.js";
import { factsPart } from "./facts.js";
import { flowPart } from "./flow.js";
import { frameOf } from "./frame.js";
import { linesPart } from "./lines.js";
import { tablePart } from "./table.js";
import { tokensPart } from "./tokens.js";

const KINDS = {
  bars: barsPart,
  facts: factsPart,
  flow: flowPart,
  lines: linesPart,
  table: tablePart,
  tokens: tokensPart,
};
const SOURCES = { books: "what was leased out", engine: "what the engines report" };
const LOOK_EVERY_MS = 2000;
const LENGTH_S = 300;

function render({ model, el }) {
  const shadow = el.appendChild(html("div")).attachShadow({ mode: "open" });
  shadow.adoptedStyleSheets = [styleSheet()];
  const state = { pausedAt: null, heard_s: seconds(), now_s: seconds(), hovered: null };
  let text = null; // of the picture that is shown
  let picture = null;
  let parts = [];
  let frameNumber = 0;

  const later = () => {
    frameNumber ||= requestAnimationFrame(() => {
      frameNumber = 0;
      draw();
    });
  };
  // Who sends pictures may rest meanwhile, if it knows the trait ``paused``.
  const pause = (at) => {
    if (state.pausedAt === at) return;
    state.pausedAt = at;
    model.set("paused", at !== null);
    model.save_changes();
  };
  const put = (name, value) => {
    pause(null);
    model.set(name, value);
    model.save_changes();
    later();
  };
  const ask = {
    length: (length) => put("window", { length_s: length }),
    follow() {
      if (state.pausedAt !== null) pause(null);
      else if (zoomOf(model)) put("window", { length_s: state.length_s ?? LENGTH_S });
      else pause(picture?.span_s?.[1] ?? seconds());
      later();
    },
    act: (name) => put("selected", name === "back" ? "" : name),
  };
  const view = {
    hovered: () => state.hovered,
    hover(time) {
      state.hovered = time;
      for (const part of parts) part.hover(time);
    },
    zoom: (from, to) => put("window", { start_s: from, end_s: to }),
    chosen: () => model.get("selected"),
    choose: (key) => put("selected", key),
  };
  const frame = frameOf(ask);
  frame.root.hidden = true; // until there is something in it
  shadow.append(frame.root);

  function draw() {
    const latest = model.get("picture");
    if (latest && latest !== text && (state.pausedAt === null || picture === null)) {
      picture = JSON.parse(latest);
      text = latest;
    }
    if (picture === null) return;
    frame.root.hidden = false;
    const zoom = zoomOf(model);
    state.zoomed = zoom !== null;
    state.length_s = windowOf(model).length_s ?? state.length_s;
    frame.draw(picture, { ...state, length_s: state.zoomed ? null : state.length_s });
    frame.tell(picture, state);
    parts = matchParts(frame.parts, parts, picture.parts, view);
    const span = zoom ?? spanOf(picture, state.length_s);
    const widths = parts.map((part) => part.body.clientWidth);
    parts.forEach((part, place) => part.draw(widths[place], span));
  }

  const heard = () => {
    state.heard_s = seconds();
    later();
  };
  const names = ["picture", "window", "selected"].map((name) => `change:${name}`);
  const listeners = names.map((name) => [name, name === "change:picture" ? heard : later]);
  for (const [name, listener] of listeners) model.on(name, listener);
  const sizes = new ResizeObserver(later);
  sizes.observe(frame.parts);
  const clock = setInterval(() => {
    state.now_s = seconds();
    if (picture) frame.tell(picture, state);
  }, LOOK_EVERY_MS);
  draw();
  return () => {
    for (const [name, listener] of listeners) model.off(name, listener);
    sizes.disconnect();
    clearInterval(clock);
    cancelAnimationFrame(frameNumber);
    shadow.host.remove();
  };
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
  const asked = model.get("window") ?? {};
  return asked instanceof Map ? Object.fromEntries(asked) : asked;
}

function zoomOf(model) {
  const { start_s: start, end_s: end } = windowOf(model);
  return start === undefined || end === undefined ? null : [start, end];
}

// At once what was asked for, from what is there, until a picture comes that was made for it.
function spanOf(picture, length) {
  if (picture.span_s === null) return null;
  const [start, end] = picture.span_s;
  return [length === undefined ? start : end - length, end];
}

// Elements by place and kind; what is there already stays.
function matchParts(host, shown, wanted, view) {
  const found = wanted.map((part, place) => {
    const old = shown[place]?.kind === part.kind ? shown[place] : partOf(part.kind, view);
    old.part = part;
    return old;
  });
  if (found.length !== shown.length || found.some((part, place) => part !== shown[place])) {
    host.replaceChildren(...found.map((part) => part.figure));
  }
  return found;
}

function partOf(kind, view) {
  const title = html("span", { class: "part-title" });
  const badge = html("span", { class: "badge" });
  const note = html("p", { class: "note" });
  const body = html("div", { class: "body" });
  const caption = html("figcaption", {}, title, badge);
  const figure = html("figure", { class: `part part-${kind}` }, caption, body, note);
  const drawing = (KINDS[kind] ?? unknownPart)(body, view);
  let drawn = "";
  return {
    kind, figure, body,
    hover: (time) => drawing.hover?.(time),
    draw(width, span) {
      const key = JSON.stringify([this.part, width, drawing.timed ? span : 0, view.chosen()]);
      if (key === drawn || width === 0) return; // unseen, or as it was
      drawn = key;
      setText(title, this.part.title);
      setText(badge, this.part.source ?? "");
      badge.title = SOURCES[this.part.source] ?? "";
      badge.hidden = !this.part.source;
      setText(note, this.part.note ?? "");
      note.hidden = !this.part.note;
      caption.hidden = !this.part.title && badge.hidden;
      attempt(() => drawing.draw(this.part, width, span), note);
    },
  };
}

function attempt(draw, note) {
  try {
    draw();
  } catch (error) {
    setText(note, `cannot be drawn: ${error.message}`);
    note.hidden = false;
    console.error(error);
  }
}

function unknownPart(host) {
  return { draw: (part) => setText(host, `cannot be drawn here: ${part.kind}`) };
}

export default { render };
