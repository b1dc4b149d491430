// Tables with live updates: rows keep their elements, and their order while the pointer or the focus is on them.

import { h, text } from './dom.js';

/**
 * A table. A column has a `label`, and either `text(item)` or `node(get)`, which is rendered again when `mark(item)` changes
 * and whose `get` returns the latest item; `sort(item)` if it is sortable; `kind` are its classes. `isHead` is the row's
 * header, `isBare` hides the label, and `isWhole` takes a line of its own on narrow screens.
 */
export function table({ caption, columns, keyOf, order = null, max = 200, empty = 'No entries.', holds = order !== null }) {
  const rows = new Map();
  const body = h('tbody');
  const heads = columns.map((column) => header(column, choose));
  const node = h('table', { class: 'table' },
    h('caption', { class: 'unseen' }, caption),
    h('thead', {}, h('tr', {}, heads)), body);
  const nothing = h('p', { class: 'empty', hidden: true }, empty);
  const more = h('p', { class: 'more', hidden: true });
  let items = [];

  function choose(column) {
    const isSame = order?.id === column.id;
    order = { id: column.id, isDescending: isSame ? !order.isDescending : column.kind === 'numeric' };
    draw(false);
  }

  function draw(isHeld) {
    heads.forEach((head, at) => markOrder(head, columns[at], order));
    const sorted = isHeld ? asBefore(items, rows, keyOf) : inOrder(items, columns, order);
    const shown = sorted.slice(0, max);
    const focused = [...body.children].findIndex((row) => row.contains(document.activeElement));
    const keys = new Set(shown.map(keyOf));
    for (const [key, row] of rows) if (!keys.has(key)) { row.node.remove(); rows.delete(key); }
    place(body, shown.map((item) => rowOf(item)));
    if (focused >= 0) keepFocus(body, focused);
    node.hidden = shown.length === 0;
    nothing.hidden = shown.length > 0;
    more.hidden = sorted.length <= max;
    text(more, `The first ${max} of ${sorted.length}. Filter to see the others.`);
  }

  function rowOf(item) {
    const key = keyOf(item);
    if (!rows.has(key)) rows.set(key, makeRow(columns));
    const row = rows.get(key);
    row.update(item);
    return row.node;
  }

  return {
    node: h('div', {}, node, nothing, more),
    body,
    update(next) {
      items = next;
      draw(holds && body.matches(':hover, :focus-within'));
    },
    say: (message) => text(nothing, message),
  };
}

function header(column, choose) {
  const name = h('span', {}, column.label);
  const inside = column.sort ? h('button', { type: 'button', on: { click: () => choose(column) } }, name) : name;
  if (column.isBare) name.className = 'unseen';
  return h('th', { scope: 'col', class: column.kind }, inside);
}

function markOrder(head, column, order) {
  if (order?.id === column.id) head.setAttribute('aria-sort', order.isDescending ? 'descending' : 'ascending');
  else head.removeAttribute('aria-sort');
}

function inOrder(items, columns, order) {
  const column = columns.find((column) => column.id === order?.id);
  if (!column) return items;
  const sign = order.isDescending ? -1 : 1;
  return [...items].sort((a, b) => sign * compare(column.sort(a), column.sort(b)));
}

const compare = (a, b) => (typeof a === 'number' ? a - b : String(a).localeCompare(String(b), 'en', { numeric: true }));

/** Existing items in their present order, new ones after them. */
function asBefore(items, rows, keyOf) {
  const places = new Map([...rows.keys()].map((key, at) => [key, at]));
  const at = (item) => places.get(keyOf(item)) ?? Infinity;
  return [...items].sort((a, b) => (at(a) === at(b) ? 0 : at(a) - at(b)));
}

/** The row that took the place of the focused one gets the focus; without one, the view does. */
function keepFocus(body, at) {
  if (body.contains(document.activeElement)) return;
  const row = body.children[Math.min(at, body.children.length - 1)];
  (row?.querySelector('button, a') ?? body.closest('main'))?.focus({ preventScroll: true });
}

function place(body, nodes) {
  const focused = document.activeElement;
  nodes.forEach((node, at) => {
    if (body.children[at] !== node) body.insertBefore(node, body.children[at] ?? null);
  });
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function makeRow(columns) {
  let now;
  const cells = columns.map((column) => {
    const kind = `table-cell ${column.kind ?? ''} ${column.isBare ? 'bare' : ''} ${column.isWhole ? 'whole' : ''}`;
    return h(column.isHead ? 'th' : 'td', { class: kind, scope: column.isHead && 'row', data: { label: column.label } });
  });
  const marks = [];
  const update = (item) => {
    now = item;
    columns.forEach((column, at) => {
      if (column.text) return text(cells[at], column.text(item));
      const mark = String(column.mark?.(item) ?? '');
      if (marks[at] === mark) return;
      marks[at] = mark;
      cells[at].replaceChildren(column.node(() => now));
    });
  };
  return { node: h('tr', {}, cells), update };
}
