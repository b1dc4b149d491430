// Text field for files: a textarea with line numbers and marks beside it and highlighting behind it.

import { h, text as put } from './dom.js';

const MAX_HIGHLIGHTED_LINES = 3000;
const LINE_REM = 1.25;
const HEAD_REM = 0.5;

/** `changed(text)` is called on every edit. */
export function codeField({ label, changed }) {
  const area = h('textarea', { 'aria-label': label, spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off',
    wrap: 'off', on: { input: typed, scroll: follow, keydown: indent } });
  const numbers = h('pre', { 'aria-hidden': 'true' });
  const marks = h('div', { 'aria-hidden': 'true' });
  const gutter = h('div', { class: 'gutter' }, marks, numbers);
  const ink = h('div', { class: 'ink', 'aria-hidden': 'true' });
  let drawn = [];

  function typed() {
    draw();
    changed(area.value);
  }

  function draw() {
    const lines = area.value.split('\n');
    put(numbers, lines.map((_, at) => at + 1).join('\n'));
    area.classList.toggle('plain', lines.length > MAX_HIGHLIGHTED_LINES);
    drawn = repaint(ink, drawn, lines.length > MAX_HIGHLIGHTED_LINES ? [] : lines);
    follow();
  }

  function follow() {
    ink.style.transform = `translate(${-area.scrollLeft}px, ${-area.scrollTop}px)`;
    numbers.style.transform = marks.style.transform = `translateY(${-area.scrollTop}px)`;
  }

  function load(value) {
    if (area.value !== value) {
      area.value = value;
      area.scrollTop = 0;
    }
    draw();
  }

  /** Selects a part of a line (from 1), and scrolls to it. */
  function choose(line, from = 0, to = from) {
    const lines = area.value.split('\n');
    const start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    area.focus({ preventScroll: true });
    area.setSelectionRange(start + from, start + to);
    area.scrollTop = Math.max(0, line - 6) * (area.scrollHeight / Math.max(1, lines.length));
    area.scrollLeft = 0;
    area.scrollIntoView({ block: 'nearest' });
  }

  return {
    node: h('div', { class: 'code' }, gutter, h('div', { class: 'paper' }, ink, area)),
    area,
    load,
    choose,
    /** Marks lines: `{line, kind: 'error' | 'warning' | 'changed'}`. */
    mark: (these) => marks.replaceChildren(...these.map(markNode)),
  };
}

function markNode({ line, kind }) {
  const node = h('i', { class: kind }, { error: '✕', warning: '!', changed: '' }[kind]);
  node.style.top = `${HEAD_REM + (line - 1) * LINE_REM}rem`;
  return node;
}

/** Highlights the lines that have changed. */
function repaint(ink, before, lines) {
  let start = 0;
  while (start < before.length && start < lines.length && before[start] === lines[start]) start += 1;
  let [end, to] = [before.length, lines.length];
  while (end > start && to > start && before[end - 1] === lines[to - 1]) { end -= 1; to -= 1; }
  for (let at = end; at > start; at -= 1) ink.children[at - 1].remove();
  const rest = ink.children[start] ?? null;
  const added = document.createDocumentFragment();
  added.append(...lines.slice(start, to).map(highlightLine));
  ink.insertBefore(added, rest);
  return lines;
}

/** Indents a new line like the previous one. */
function indent(event) {
  const area = event.currentTarget;
  if (event.key !== 'Enter' || event.shiftKey || event.ctrlKey || event.metaKey || event.isComposing || area.readOnly) return;
  event.preventDefault();
  const line = area.value.slice(0, area.selectionStart).split('\n').at(-1);
  // Deprecated, but the only way to insert text that keeps undo.
  document.execCommand('insertText', false, `\n${/^ */.exec(line)[0]}`);
}

const PARTS = /(?<comment>(?<=^|\s)#.*$)|(?<key>[\w.-]+)(?=\s*:(\s|$))|(?<value>"[^"]*"|'[^']*')|(?<amount>(?<![\w.-])\d[\d_.]*(?![\w.-]))/g;

/** Renders one line. */
function highlightLine(line) {
  const node = h('div');
  let done = 0;
  for (const found of line.matchAll(PARTS)) {
    const kind = Object.keys(found.groups).find((name) => found.groups[name] !== undefined);
    node.append(line.slice(done, found.index), h('span', { class: kind }, found[0]));
    done = found.index + found[0].length;
  }
  // An empty line must have the height of the others.
  node.append(line.slice(done) || (done === 0 ? ' ' : ''));
  return node;
}
