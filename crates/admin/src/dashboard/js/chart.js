// A chart over time: stacked areas, or lines. It can be read by pointer, by arrow keys, or as a table.

import { h, redraw, svg, text } from './dom.js';
import { clock, minute } from './format.js';

const FOOT = 20;
const HEAD = 8;
const SIDE = 46;
const MARK_MS = 5 * 60_000;

/**
 * A series has a `name`, a `kind` (its style) and `value(sample)`, which may return null. `span` is the time shown, in
 * milliseconds; `isStacked` stacks the series.
 */
export function chart({ name, series, show, span, isStacked = false }) {
  const drawing = h('div', { class: 'drawing', tabindex: '0', role: 'img' });
  const nothing = h('p', { class: 'empty' }, 'No data yet.');
  const values = series.map(() => h('b'));
  const when = h('li', { class: 'when number' });
  const legend = h('ul', { class: 'legend', 'aria-hidden': 'true' },
    series.map((one, at) => h('li', {}, sample(one, isStacked), one.name, values[at])), when);
  const rows = h('tbody');
  const columns = ['Time', ...series.map((one) => one.name)];
  const table = h('details', {}, h('summary', {}, 'As a table'), h('table', { class: 'table' },
    h('caption', { class: 'unseen' }, name),
    h('thead', {}, h('tr', {}, columns.map((label) => h('th', { scope: 'col' }, label)))), rows));
  let samples = [];
  let cursor = null;
  drawing.append(nothing);

  function draw() {
    const width = drawing.clientWidth;
    const height = drawing.clientHeight;
    if (width === 0 || samples.length === 0) return;
    const plot = layout({ samples, series, span, isStacked, width, height });
    drawing.replaceChildren(plot.most > 0 ? picture(plot, { series, show, cursor, isStacked }) : nothing);
    read();
  }

  function read() {
    const at = cursor ?? samples.length - 1;
    series.forEach((one, number) => text(values[number], format(one.value(samples[at]))));
    text(when, cursor === null ? 'now' : clock(samples[at].at_ms));
  }

  const format = (value) => (value === null ? '–' : show(value));

  function point(event) {
    if (samples.length === 0) return;
    const box = drawing.getBoundingClientRect();
    const last = samples.at(-1).at_ms;
    const at = last - span + ((event.clientX - box.left - SIDE) / (box.width - SIDE)) * span;
    cursor = nearest(samples, at);
    draw();
  }

  function step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || samples.length === 0) return;
    event.preventDefault();
    cursor = Math.min(samples.length - 1, Math.max(0, (cursor ?? samples.length - 1) + by));
    draw();
    const values = series.map((one) => `${one.name} ${format(one.value(samples[cursor]))}`);
    drawing.setAttribute('aria-label', `${clock(samples[cursor].at_ms)}: ${values.join(', ')}`);
  }

  const leave = () => { cursor = null; draw(); };
  for (const [event, handle] of [['pointermove', point], ['pointerleave', leave], ['keydown', step], ['blur', leave]]) {
    drawing.addEventListener(event, handle);
  }
  const size = new ResizeObserver(draw);
  size.observe(drawing);

  return {
    node: h('div', { class: 'chart' }, legend, drawing, table),
    stop: () => size.disconnect(),
    /** Shows samples; `summary` is the description for screen readers. */
    update(next, summary) {
      samples = next;
      if (cursor !== null) cursor = Math.min(cursor, samples.length - 1);
      if (cursor === null) drawing.setAttribute('aria-label', `${name}. ${summary}`);
      draw();
      if (table.open || rows.childElementCount === 0) fill(rows, samples, series, format);
    },
  };
}

const nearest = (samples, at) =>
  samples.reduce((best, one, here) => (Math.abs(one.at_ms - at) < Math.abs(samples[best].at_ms - at) ? here : best), 0);

function fill(rows, samples, series, format) {
  const each = samples.filter((_, at) => (samples.length - 1 - at) % 12 === 0).reverse();
  const mark = String(each[0]?.at_ms);
  redraw(rows, mark, () => each.map((one) => h('tr', {},
    h('th', { scope: 'row', class: 'number' }, minute(one.at_ms)),
    series.map((line) => h('td', { class: 'number' }, format(line.value(one)))))));
}

function sample(one, isStacked) {
  const shape = isStacked ? svg('rect', { class: 'area', width: 16, height: 10, y: 1, rx: 2 }) : null;
  return svg('svg', { class: one.kind, viewBox: '0 0 16 12', 'aria-hidden': 'true' }, shape,
    svg('path', { class: 'edge', d: isStacked ? 'M0 1H16' : 'M0 6H16' }));
}

function layout({ samples, series, span, isStacked, width, height }) {
  const last = samples.at(-1).at_ms;
  const tops = samples.map(() => 0);
  const heights = series.map((one) => samples.map((sample, at) => {
    const value = one.value(sample);
    if (value === null || !isStacked) return value;
    tops[at] += value;
    return tops[at];
  }));
  const most = Math.max(...heights.flat().map((value) => value ?? 0));
  const lines = ticks(most);
  const x = (at) => SIDE + ((at - last + span) / span) * (width - SIDE);
  const y = (value) => height - FOOT - (value / lines.at(-1)) * (height - FOOT - HEAD);
  return { samples, heights, lines, most, x, y, width, height, first: last - span, last };
}

function picture(plot, { series, show, cursor, isStacked }) {
  const { lines, x, y, width, height } = plot;
  const levels = lines.map((line) => [
    svg('line', { class: 'grid', x1: SIDE, x2: width, y1: y(line), y2: y(line) }),
    svg('text', { x: SIDE - 8, y: y(line) + 4, 'text-anchor': 'end' }, show(line))]);
  const times = [];
  for (let at = Math.ceil(plot.first / MARK_MS) * MARK_MS; at <= plot.last; at += MARK_MS) {
    if (x(at) > SIDE + 14 && x(at) < width - 14) {
      times.push(svg('text', { x: x(at), y: height - 4, 'text-anchor': 'middle' }, minute(at)));
    }
  }
  // Higher areas are drawn first; the lower ones cover the rest of them.
  const shapes = series.map((one, at) => shape(plot, one, at, isStacked));
  const mark = cursor === null ? null
    : svg('line', { class: 'cursor', x1: x(plot.samples[cursor].at_ms), x2: x(plot.samples[cursor].at_ms), y1: HEAD, y2: height - FOOT });
  return svg('svg', { 'aria-hidden': 'true', focusable: 'false' }, levels, times, isStacked ? shapes.reverse() : shapes, mark);
}

function shape({ samples, heights, x, y, first }, one, at, isStacked) {
  const runs = [[]];
  samples.forEach((sample, number) => {
    if (sample.at_ms < first) return;
    if (heights[at][number] === null) runs.push([]);
    else runs.at(-1).push([x(sample.at_ms), y(heights[at][number])]);
  });
  const drawn = runs.filter((run) => run.length > 0);
  const edge = (run) => run.map(([left, top]) => `${left.toFixed(1)} ${top.toFixed(1)}`).join('L');
  const area = (run) => `M${edge(run)}V${y(0)}H${run[0][0].toFixed(1)}Z`;
  return svg('g', { class: one.kind },
    isStacked && svg('path', { class: 'area', d: drawn.map(area).join('') }),
    svg('path', { class: 'edge', d: drawn.map((run) => `M${edge(run)}`).join('') }));
}

const STEPS = [1, 2, 2.5, 5, 10];

/** The lines of an axis from 0 to at least `most`: about three of them. */
export function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((candidate) => candidate * power >= rough * 0.999);
  const lines = [];
  for (let at = 0; at < most + step * 0.999; at += step) lines.push(Number(at.toPrecision(12)));
  return lines;
}
