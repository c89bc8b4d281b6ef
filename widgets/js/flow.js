// What goes from where to where: bands between two columns, as thick as what they stand for.

import { html, ink, setText, shortened, svg, textWidth } from "./dom.js";
import { decimalsOf, quantity, unitWord } from "./format.js";

const SLOT = 17; // the least room of a name, in pixels
const SCALE_ROOM = 150; // what all bands together may take beyond that
const NODE = 8;

export function flowPart(host) {
  const plot = svg("svg", { class: "plot flow", "aria-hidden": "true" });
  const readout = html("p", { class: "readout" });
  host.append(plot, readout);
  const say = (text) => setText(readout, text);
  plot.addEventListener("pointerover", (event) => say(event.target.dataset?.words ?? ""));
  plot.addEventListener("pointerleave", () => say(""));
  return {
    draw(part, width) {
      const chart = layOut(part, width, `11px ${getComputedStyle(plot).fontFamily}`);
      plot.setAttribute("width", width);
      plot.setAttribute("height", chart.height + 4);
      plot.replaceChildren(
        ...bands(chart),
        ...column(chart, "left", () => "currentColor"),
        ...column(chart, "right", (place) => colour(part, place)),
        ...(part.links.length ? [] : [nothing(chart)]),
      );
    },
  };
}

function colour(part, place) {
  return ink(part.colours[place] ?? "");
}

function layOut(part, width, font) {
  const total = part.links.reduce((sum, link) => sum + link.value, 0);
  const sums = (count, side) => Array.from({ length: count }, (_, place) =>
    part.links.reduce((sum, link) => sum + (link[side] === place ? link.value : 0), 0));
  const [left, right] = [sums(part.left.length, "source"), sums(part.right.length, "target")];
  const scale = total ? SCALE_ROOM / total : 0;
  const columns = [left, right].map((values) => slots(values, scale));
  const height = Math.max(...columns.map((slots) => slots.height), SLOT * 2);
  for (const slots of columns) slots.spread(height);
  const decimals = decimalsOf(part.links.map((link) => link.value));
  const figures = [...left, ...right].map((value) => quantity(value, part.unit, decimals));
  const figureRoom = Math.max(...figures.map((text) => textWidth(text, font)), 8) + 8;
  const nameRoom = (names) =>
    Math.min(Math.max(...names.map((name) => textWidth(name, font)), 16), width * 0.28);
  const [leftRoom, rightRoom] = [nameRoom(part.left), nameRoom(part.right)];
  return {
    part, width, font, scale, height, decimals, figureRoom, leftRoom, rightRoom,
    left: columns[0], right: columns[1],
    leftEdge: leftRoom + figureRoom + NODE + 6,
    rightEdge: width - rightRoom - figureRoom - NODE - 6,
  };
}

// Where each end stands: at least one line of text high.
function slots(values, scale) {
  const sizes = values.map((value) => value * scale);
  const rooms = sizes.map((size) => Math.max(size + 4, SLOT));
  const found = { sizes, values, starts: [], height: rooms.reduce((sum, room) => sum + room, 0) };
  found.spread = (height) => {
    const extra = (height - found.height) / Math.max(1, rooms.length);
    let top = 2;
    found.starts = rooms.map((room, place) => {
      const start = top + (room + extra - sizes[place]) / 2;
      top += room + extra;
      return start;
    });
  };
  return found;
}

function bands(chart) {
  const { part, scale, leftEdge, rightEdge } = chart;
  const [out, into] = [[...chart.left.starts], [...chart.right.starts]];
  const middle = (leftEdge + rightEdge) / 2;
  const inOrder = [...part.links].sort((a, b) => a.source - b.source || a.target - b.target);
  return inOrder.map((link) => {
    const size = link.value * scale;
    const [from, to] = [out[link.source], into[link.target]];
    out[link.source] += size;
    into[link.target] += size;
    const path =
      `M${leftEdge},${from}C${middle},${from} ${middle},${to} ${rightEdge},${to}` +
      `v${size}C${middle},${to + size} ${middle},${from + size} ${leftEdge},${from + size}Z`;
    const value = quantity(link.value, part.unit, chart.decimals);
    const ends = `${part.left[link.source]} → ${part.right[link.target]}`;
    const words = `${ends}: ${value} ${unitWord(part.unit)}`;
    const look = { class: "band", fill: colour(part, link.target) };
    return svg("path", { ...look, d: path, "data-words": words });
  });
}

function column(chart, side, colourOf) {
  const isLeft = side === "left";
  const x = isLeft ? chart.leftEdge - NODE : chart.rightEdge;
  const slots = chart[side];
  return chart.part[side].flatMap((name, place) => {
    const [start, size] = [slots.starts[place], slots.sizes[place]];
    const y = start + size / 2 + 4;
    const bar = { class: "node", x, y: start, width: NODE, height: Math.max(size, 0.5) };
    const value = quantity(slots.values[place], chart.part.unit, chart.decimals);
    const [valueX, nameX] = isLeft
      ? [x - 6, x - 6 - chart.figureRoom]
      : [x + NODE + 6 + chart.figureRoom - 8, x + NODE + 6 + chart.figureRoom];
    const room = isLeft ? chart.leftRoom : chart.rightRoom;
    const label = svg("text", { class: isLeft ? "label end" : "label", x: nameX, y });
    setText(label, shortened(name, room, chart.font));
    label.append(svg("title", {}, name));
    return [
      svg("rect", { ...bar, fill: colourOf(place) }),
      svg("text", { class: "label end figure", x: valueX, y }, value),
      label,
    ];
  });
}

function nothing(chart) {
  const place = { x: (chart.leftEdge + chart.rightEdge) / 2, y: chart.height / 2 + 4 };
  return svg("text", { class: "label middle muted", ...place }, "nothing yet");
}
