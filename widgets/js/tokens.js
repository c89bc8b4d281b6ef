// A sequence of tokens. What the policy sampled is shaded by how unlikely it was.

import { html, setAttribute, setText } from "./dom.js";

export function tokensPart(host) {
  const readout = html("p", { class: "readout", "aria-live": "polite" });
  const text = html("div", { class: "tokens scroll", tabindex: "0", role: "group" });
  const key = html("p", { class: "key", "aria-hidden": "true" });
  host.append(key, readout, text);
  for (const [look, words] of [
    ["token", "told"],
    ["token sampled", "sampled"],
    ["token sampled", "sampled, unlikely"],
  ]) {
    key.append(html("span", { class: look }, words));
  }
  key.lastChild.style.setProperty("--unlikely", "1");
  let tokens = [];
  let current = null;
  const look = (place) => {
    text.children[current]?.classList.remove("current");
    current = place;
    text.children[current]?.classList.add("current");
    const token = tokens[place];
    setText(readout, token ? [`token ${place}`, token.hint].filter(Boolean).join(" · ") : HOW);
  };
  text.addEventListener("pointerover", (event) => {
    const { place } = event.target.closest("[data-place]")?.dataset ?? {};
    if (place !== undefined) look(Number(place));
  });
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined || tokens.length === 0) return;
    event.preventDefault();
    look(Math.min(Math.max((current ?? -step) + step, 0), tokens.length - 1));
    text.children[current].scrollIntoView({ block: "nearest" });
  });
  return {
    draw(part) {
      setAttribute(text, "aria-label", part.title);
      tokens = part.tokens;
      text.replaceChildren(...tokens.map(spanOf));
      look(current !== null && current < tokens.length ? current : null);
    },
  };
}

const HOW = "point at a token, or use ← and →";

function spanOf(token, place) {
  const look = token.mask ? "token sampled" : "token";
  const mark = token.mark ? [html("sup", { class: "mark" }, token.mark)] : [];
  const span = html("span", { class: look, "data-place": place }, ...mark, visible(token.text));
  if (token.shade !== null) span.style.setProperty("--unlikely", token.shade);
  return span;
}

// Where a line ends is seen, and ends it.
function visible(text) {
  return text.replace(/␊|\n/g, "↵\n");
}
