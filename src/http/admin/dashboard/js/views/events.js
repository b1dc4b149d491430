// Events that operators are notified of.

import { call, query } from '../api.js';
import { all } from '../observable.js';
import { button, head, panel, troubles } from '../controls.js';
import { busy } from '../dialog.js';
import { h } from '../dom.js';
import { date } from '../format.js';
import { link } from '../links.js';
import { say } from '../messages.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';

const MAX_LATEST = 5;

const eventTable = (empty) => table({
  caption: 'Events, newest first',
  keyOf: (event) => event.id,
  most: 1000,
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
  let older = [];
  const list = eventTable('No events yet.');
  const more = button('Show older events', load);
  const trouble = troubles('events');
  const shown = () => {
    const newest = data.events.get()?.events ?? [];
    const ids = new Set(newest.map((event) => event.id));
    return [...newest, ...older.filter((event) => !ids.has(event.id))];
  };
  const draw = () => list.update(shown());
  const stop = all(trouble.stop, watch('events'), data.events.subscribe((answer) => answer && draw()));

  async function load() {
    busy(more, true);
    try {
      const answer = await call('GET', query('events', { before: shown().at(-1)?.id, limit: 100 }));
      older = [...shown(), ...answer.events];
      more.hidden = answer.events.length === 0;
      draw();
    } catch (error) {
      say(error.message, 'bad');
    }
    busy(more, false);
  }

  const node = h('div', { class: 'view' }, head('Events', 'What needs attention in all instances, such as a used share of a budget.'),
    trouble.node, panel('Events', '', list.node), h('div', { class: 'row' }, more));
  return { title: 'Events', node, stop };
}
