// Figures that are read as text.

import { html, setAttribute, setText } from "./dom.js";

export function factsPart(host) {
  const list = html("dl", { class: "facts" });
  const widest = new Map(); // by label, so far: figures that change push nothing about
  host.append(list);
  return {
    draw(part) {
      while (list.children.length > part.facts.length) list.lastChild.remove();
      while (list.children.length < part.facts.length) {
        list.append(html("div", {}, html("dt"), html("dd")));
      }
      part.facts.forEach((fact, place) => {
        const box = list.children[place];
        setAttribute(box, "class", `fact ${fact.tone}`);
        setText(box.firstChild, fact.label);
        setText(box.lastChild, fact.text);
        box.style.minWidth = `${widest.get(fact.label) ?? 0}px`;
      });
      part.facts.forEach((fact, place) => {
        widest.set(fact.label, list.children[place].getBoundingClientRect().width);
      });
    },
  };
}
