// Horizontal bars with their values in words.

import { ink, setText, shortened, svg, textWidth } from "./dom.js";
import { tick, unitWord } from "./format.js";
import { axisOf, linear } from "./scale.js";

const ROWS = { few: { height: 22, bar: 12 }, many: { height: 16, bar: 10 } };
const FEW = 12;
const BOTTOM = 34;
const TICK_ROOM = 56;

export function barsPart(host) {
  const plot = svg("svg", { class: "plot", "aria-hidden": "true" });
  host.append(plot);
  let textRoom = 0; // only grows, so that bars do not move about
  return {
    draw(part, width) {
      const font = `11px ${getComputedStyle(plot).fontFamily}`;
      const texts = part.bars.map((bar) => textWidth(bar.text, font));
      textRoom = Math.min(Math.max(textRoom, ...texts, 0), width * 0.4);
      const chart = layOut(part, width, font, textRoom);
      plot.setAttribute("width", width);
      plot.setAttribute("height", chart.bottom + BOTTOM);
      const rows = part.bars.flatMap((bar, place) => rowOf(chart, bar, place));
      const drawn = rows.length ? [...grid(chart), ...rows, ...levels(chart)] : [nothing(chart)];
      plot.replaceChildren(...drawn);
    },
  };
}

function layOut(part, width, font, textRoom) {
  const names = part.bars.map((bar) => textWidth(bar.name, font));
  const nameRoom = Math.min(Math.max(...names, 24), width * 0.34);
  const [left, right] = [nameRoom + 8, Math.max(nameRoom + 28, width - textRoom - 14)];
  const values = part.bars.map((bar) => bar.value ?? 0);
  const most = Math.max(1, Math.min(5, Math.floor((right - left) / TICK_ROOM)));
  const whole = values.every(Number.isInteger) && part.unit !== "share";
  const end = part.limit ?? Math.max(...values, 0);
  const axis = axisOf(Math.min(0, ...values), end, { most, whole });
  const top = part.limit ?? axis.to;
  const start = part.levels.length ? 16 : 4;
  const row = part.bars.length > FEW ? ROWS.many : ROWS.few;
  return {
    part, width, font, nameRoom, left, right, axis, top, textRoom, start, row,
    bottom: start + row.height * Math.max(1, part.bars.length),
    x: linear(axis.from, top, left, right),
  };
}

function grid(chart) {
  const { axis, bottom, part, start, top } = chart;
  const found = [];
  for (const value of axis.ticks.filter((value) => value <= top + 1e-9)) {
    const x = chart.x(value);
    found.push(svg("path", { class: "grid", d: `M${x},${start}V${bottom}` }));
    const words = tick(value, part.unit, axis.step);
    found.push(svg("text", { class: "label middle", x, y: bottom + 14 }, words));
  }
  const unit = { class: "label end muted", x: chart.right, y: bottom + 28 };
  found.push(svg("text", unit, unitWord(part.unit)));
  const base = { class: "base", d: `M${chart.x(0)},${start}V${bottom}` };
  found.push(svg("path", base));
  return found;
}

function rowOf(chart, bar, place) {
  const middle = chart.start + chart.row.height * (place + 0.5);
  const name = svg("text", { class: "label end", x: chart.nameRoom, y: middle + 4 });
  setText(name, shortened(bar.name, chart.nameRoom, chart.font));
  name.append(svg("title", {}, bar.name));
  const text = svg("text", { class: "label end figure", x: chart.width - 4, y: middle + 4 });
  setText(text, shortened(bar.text, chart.textRoom + 1, chart.font));
  text.append(svg("title", {}, bar.text));
  if (bar.value === null) return [name, text];
  const [from, to] = [chart.x(0), chart.x(Math.min(bar.value, chart.top))];
  const size = { x: Math.min(from, to), width: Math.abs(to - from), height: chart.row.bar };
  const shape = { class: "bar", ...size, y: middle - chart.row.bar / 2, fill: ink(bar.colour) };
  return [name, svg("rect", shape), text];
}

// The highest level's word stands to its right, the others' to their left.
function levels(chart) {
  const inReach = chart.part.levels.filter((level) => level.value <= chart.top);
  inReach.sort((one, other) => one.value - other.value);
  return inReach.flatMap((level, place) => {
    const x = chart.x(level.value);
    const isLast = place === inReach.length - 1;
    const word = { class: isLast ? "label" : "label end", x: x + (isLast ? 3 : -3), y: 10 };
    return [
      svg("path", { class: "level", d: `M${x},2V${chart.bottom}` }),
      svg("text", word, level.word),
    ];
  });
}

function nothing(chart) {
  const place = { x: chart.width / 2, y: chart.bottom };
  return svg("text", { class: "label middle muted", ...place }, "nothing yet");
}
