// The audit log.

import { head, panel, troubles } from '../controls.js';
import { h } from '../dom.js';
import { date } from '../format.js';
import { all } from '../observable.js';
import { paged } from '../paging.js';
import { table } from '../table.js';

const BANS = { lift: 'lifted a ban', forgive: 'forgave a client' };
const ACTIONS = {
  apply: 'applied rules', rollback: 'rolled back', add_entry: 'added to a list', remove_entry: 'removed from a list',
  set_switch: 'switched a rule', remove_switch: 'removed a switch',
  set_override: 'overrode a limit', remove_override: 'removed an override', reset_counter: 'reset a counter',
  refund_counter: 'refunded hits', restore: 'restored what was lost', copy: 'copied from a region',
};

export function audit() {
  const list = table({
    caption: 'Changes, newest first',
    keyOf: (entry) => entry.id,
    max: 2000,
    empty: 'No changes yet.',
    columns: [
      { id: 'at', label: 'When', kind: 'tight', text: (entry) => date(entry.at_ms) },
      { id: 'who', label: 'Author', text: (entry) => entry.author },
      { id: 'what', label: 'Action', text: (entry) => BANS[entry.ban] ?? ACTIONS[entry.action] ?? entry.action },
      { id: 'subject', label: 'Object', isHead: true, node: (get) => h('code', {}, get().subject) },
      { id: 'why', label: 'Reason', text: (entry) => entry.comment || '–' },
    ],
  });
  const pages = paged(list, { resource: 'audit', entries: 'entries', label: 'Show older entries', limit: 100 });
  const trouble = troubles('audit');
  const node = h('div', { class: 'view' }, head('Audit', 'Every change made through the API or the command line.'),
    trouble.node, panel('Changes', '', list.node), h('div', { class: 'row' }, pages.more));
  return { title: 'Audit', node, stop: all(trouble.stop, pages.stop) };
}
