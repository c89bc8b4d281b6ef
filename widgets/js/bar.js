// What is above the pictures: what is wrong, what can be searched and sorted, what can be taken away.

import { html } from "./dom.js";
import { fieldOf, plain } from "./fields.js";

function render({ model, el }) {
  const shadow = el.appendChild(html("div")).attachShadow({ mode: "open" });
  const notice = html("p", { class: "notice", role: "status" });
  const fields = html("span", { class: "row", style: "margin: 0" });
  const links = html("span", { class: "links" });
  const row = html("div", { class: "row" }, fields, links);
  shadow.append(html("style", {}, STYLE), html("div", { class: "bar" }, notice, row));

  const values = () => plain(model.get("values"));
  const put = (name, value) => {
    const first = "page" in values() ? { page: "0" } : {}; // of what is found from now on
    model.set("values", { ...values(), ...first, [name]: value });
    model.save_changes();
  };
  const drawn = (model.get("fields") ?? []).map(plain).map((field) => {
    const part = fieldOf(field, (value) => put(field.name, value));
    fields.append(part.root);
    return () => part.draw(values()[field.name] ?? "", plain(model.get("note")));
  });

  function draw() {
    const { text, tone } = plain(model.get("notice"));
    notice.textContent = text ?? "";
    notice.hidden = !text;
    notice.className = `notice ${tone ?? ""}`;
    for (const part of drawn) part();
    const offered = (model.get("links") ?? []).map(plain);
    const key = JSON.stringify(offered);
    if (links.dataset.key !== key) {
      links.dataset.key = key;
      links.replaceChildren(...offered.map(({ label, href }) =>
        html("a", { href, download: "" }, label)));
    }
    row.hidden = drawn.length === 0 && offered.length === 0;
  }

  const names = ["notice", "note", "values", "links"].map((name) => `change:${name}`);
  for (const name of names) model.on(name, draw);
  // Nobody sees a hidden page: it asks for nothing until it is shown again.
  const seen = () => {
    model.set("hidden", document.hidden);
    model.save_changes();
  };
  document.addEventListener("visibilitychange", seen);
  if (document.hidden) seen();
  draw();
  return () => {
    for (const name of names) model.off(name, draw);
    document.removeEventListener("visibilitychange", seen);
  };
}

export default { render };
