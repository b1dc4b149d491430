// Events that operators are notified of.

import { head, panel, troubles } from '../controls.js';
import { h } from '../dom.js';
import { date } from '../format.js';
import { link } from '../links.js';
import { all } from '../observable.js';
import { paged } from '../paging.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';

const MAX_LATEST = 5;

const eventTable = (empty) => table({
  caption: 'Events, newest first',
  keyOf: (event) => event.id,
  max: 1000,
  empty,
  columns: [
    { id: 'at', label: 'When', kind: 'tight', text: (event) => date(event.at_ms) },
    { id: 'kind', label: 'Kind', text: (event) => event.kind.replaceAll('_', ' ') },
    { id: 'object', label: 'Object', isHead: true, node: (get) => object(get()) },
    { id: 'message', label: 'Event', kind: 'most', text: (event) => event.message },
  ],
});

const object = (event) => h('div', {}, h('code', {}, event.key ?? event.rule ?? event.domain),
  (event.key ?? event.rule) && h('span', { class: 'below' }, event.domain));

/** The latest events, for the overview. */
export function latestEvents() {
  const list = eventTable('No events yet.');
  const stop = all(watch('events'), data.events.subscribe((answer) => answer && list.update(answer.events.slice(0, MAX_LATEST))));
  return { node: panel('Events', h('a', { href: link('events'), class: 'small' }, 'All events'), list.node), stop };
}

export function events() {
  const list = eventTable('No events yet.');
  const pages = paged(list, { resource: 'events', label: 'Show older events', limit: 100 });
  const trouble = troubles('events');
  const node = h('div', { class: 'view' }, head('Events', 'What needs attention in all instances, such as a used share of a budget.'),
    trouble.node, panel('Events', '', list.node), h('div', { class: 'row' }, pages.more));
  return { title: 'Events', node, stop: all(trouble.stop, pages.stop) };
}
