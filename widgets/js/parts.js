// The parts of a picture: elements by place and kind, which stay while their content changes.

import { barsPart } from "./bars.js";
import { html, setText } from "./dom.js";
import { factsPart } from "./facts.js";
import { flowPart } from "./flow.js";
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

export function matchParts(host, shown, wanted, view) {
  const found = wanted.map((part, place) => {
    const old = shown[place]?.kind === part.kind ? shown[place] : new Part(part.kind, view);
    old.part = part;
    return old;
  });
  if (found.length !== shown.length || found.some((part, place) => part !== shown[place])) {
    host.replaceChildren(...found.map((part) => part.figure));
  }
  return found;
}

class Part {
  constructor(kind, view) {
    this.kind = kind;
    this.view = view;
    this.title = html("span", { class: "part-title" });
    this.badge = html("span", { class: "badge" });
    this.caption = html("figcaption", {}, this.title, this.badge);
    this.body = html("div", { class: "body" });
    this.note = html("p", { class: "note" });
    const inside = [this.caption, this.body, this.note];
    this.figure = html("figure", { class: `part part-${kind}` }, ...inside);
    this.drawing = (KINDS[kind] ?? unknownPart)(this.body, view);
    this.drawn = "";
  }

  hover(time) {
    this.drawing.hover?.(time);
  }

  // Not while it is unseen, nor where it is as it was.
  draw(width, span) {
    const { part, drawing } = this;
    const state = JSON.stringify([part, width, drawing.timed ? span : 0, this.view.chosen()]);
    if (state === this.drawn || width === 0) return;
    this.drawn = state;
    this.drawFrame(part);
    try {
      drawing.draw(part, width, span);
    } catch (error) {
      setText(this.note, `cannot be drawn: ${error.message}`);
      this.note.hidden = false;
      console.error(error);
    }
  }

  drawFrame(part) {
    setText(this.title, part.title);
    setText(this.badge, part.source ?? "");
    this.badge.title = SOURCES[part.source] ?? "";
    this.badge.hidden = !part.source;
    this.caption.hidden = !part.title && !part.source;
    setText(this.note, part.note ?? "");
    this.note.hidden = !part.note;
  }
}

function unknownPart(host) {
  return { draw: (part) => setText(host, `cannot be drawn here: ${part.kind}`) };
}
