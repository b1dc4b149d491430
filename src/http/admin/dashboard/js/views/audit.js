// The audit log.

import { call, query } from '../api.js';
import { all } from '../observable.js';
import { button, head, panel, troubles } from '../controls.js';
import { busy } from '../dialog.js';
import { h } from '../dom.js';
import { date } from '../format.js';
import { say } from '../messages.js';
import { data, watch } from '../poll.js';
import { table } from '../table.js';

const BANS = { lift: 'lifted a ban', forgive: 'forgave a client' };
const ACTIONS = {
  apply: 'applied rules', rollback: 'rolled back', add_entry: 'added to a list', remove_entry: 'removed from a list',
  set_switch: 'switched a rule', remove_switch: 'removed a switch',
  set_override: 'overrode a limit', remove_override: 'removed an override', reset_counter: 'reset a counter',
  refund_counter: 'refunded hits',
};

export function audit() {
  let older = [];
  const list = table({
    caption: 'Changes, newest first',
    keyOf: (entry) => entry.id,
    most: 2000,
    empty: 'No changes yet.',
    columns: [
      { id: 'at', label: 'When', kind: 'tight', text: (entry) => date(entry.at_ms) },
      { id: 'who', label: 'Author', text: (entry) => entry.author },
      { id: 'what', label: 'Action', text: (entry) => BANS[entry.ban] ?? ACTIONS[entry.action] ?? entry.action },
      { id: 'subject', label: 'Object', isHead: true, node: (get) => h('code', {}, get().subject) },
      { id: 'why', label: 'Reason', text: (entry) => entry.comment || '–' },
    ],
  });
  const more = button('Show older entries', load);
  const trouble = troubles('audit');
  const shown = () => {
    const newest = data.audit.get()?.entries ?? [];
    const ids = new Set(newest.map((entry) => entry.id));
    return [...newest, ...older.filter((entry) => !ids.has(entry.id))];
  };
  const draw = () => list.update(shown());
  const stop = all(trouble.stop, watch('audit'), data.audit.subscribe((answer) => answer && draw()));

  async function load() {
    busy(more, true);
    try {
      const { entries } = await call('GET', query('audit', { before: shown().at(-1)?.id, limit: 100 }));
      older = [...shown(), ...entries];
      more.hidden = entries.length === 0;
      draw();
    } catch (error) {
      say(error.message, 'bad');
    }
    busy(more, false);
  }

  const node = h('div', { class: 'view' }, head('Audit', 'Every change made through the API or the command line.'),
    trouble.node, panel('Changes', '', list.node), h('div', { class: 'row' }, more));
  return { title: 'Audit', node, stop };
}
