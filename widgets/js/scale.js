// From values to pixels, and where the axes' marks stand.

export function linear(from, to, start, end) {
  const slope = (end - start) / (to - from || 1);
  return (value) => start + (value - from) * slope;
}

// An axis that holds all values and zero, with `most` steps of 1, 2 or 5 times a power of ten.
export function axisOf(low, high, { most = 4, whole = false } = {}) {
  const [from, to] = [Math.min(0, low), Math.max(0, high)];
  const extent = to - from || 1;
  let step = 10 ** Math.floor(Math.log10(extent / most));
  step = [1, 2, 5, 10].map((size) => size * step).find((size) => extent / size <= most + 1e-9);
  if (whole) step = Math.max(1, step);
  const [first, last] = [Math.floor(from / step + 1e-9), Math.ceil(to / step - 1e-9)];
  const ticks = [];
  for (let place = first; place <= Math.max(last, first + 1); place += 1) {
    ticks.push(Number((place * step).toPrecision(12)));
  }
  return { from: ticks[0], to: ticks.at(-1), step, ticks };
}

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
];

// Round times of the day where the reader is.
export function timeTicks(from, to, most) {
  const step = TIME_STEPS.find((size) => (to - from) / size <= most) ?? 86400;
  const zone = new Date(to * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  for (let time = Math.ceil((from - zone) / step) * step + zone; time <= to; time += step) {
    ticks.push(time);
  }
  return { step, ticks };
}

// The place of the value that is nearest to `wanted` in a rising sequence.
export function nearest(sorted, wanted) {
  let [low, high] = [0, sorted.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle;
    else high = middle;
  }
  return Math.abs(sorted[low] - wanted) <= Math.abs(sorted[high] - wanted) ? low : high;
}

// Rows further apart than this were not taken one after the other: a gap is between them.
export function gapOf(times) {
  if (times.length < 3) return Infinity;
  const steps = times.slice(1).map((time, place) => time - times[place]);
  steps.sort((one, other) => one - other);
  return 4 * steps[steps.length >> 1];
}
