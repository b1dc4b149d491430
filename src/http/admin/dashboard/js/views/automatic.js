// Automatic entries: clients that were banned again and again.

import { call } from '../api.js';
import { badge, writeButton } from '../controls.js';
import { writeListed } from '../descriptor.js';
import { h } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { refresh } from '../poll.js';
import { table } from '../table.js';

const MODES = { enforce: ['denied', 'bad'], exempt: ['exempt', 'ok'] };

/** The table of automatic entries. */
export const automaticTable = () => table({
  caption: 'Automatic entries of the deny list',
  // A row is made anew when its effect changes.
  keyOf: (entry) => `${entry.id} ${entry.mode}`,
  empty: 'No client is listed after bans.',
  columns: [
    { id: 'mode', label: 'Effect', kind: 'tight', sort: (entry) => entry.mode, node: (get) => badge(...MODES[get().mode]) },
    { id: 'what', label: 'Key', isHead: true, sort: (entry) => writeListed(entry.descriptor),
      node: (get) => h('div', {}, h('span', { class: 'path' }, writeListed(get().descriptor)),
        h('span', { class: 'below' }, `domain ${get().domain}`)) },
    { id: 'why', label: 'Rule and reason', text: (entry) => `${entry.rule}: ${entry.reason || '–'}` },
    { id: 'who', label: 'Added', sort: (entry) => entry.created_at_ms, text: (entry) => `${entry.author}, ${date(entry.created_at_ms)}` },
    { id: 'end', label: 'Ends', sort: (entry) => entry.expires_at_ms, text: (entry) => until(entry.expires_at_ms) },
    { id: 'do', label: 'Actions', isBare: true, node: (get) => tools(get()) },
  ],
  order: { id: 'who', isDescending: true },
});

function tools(entry) {
  const key = writeListed(entry.descriptor);
  const lift = writeButton(entry.mode === 'exempt' ? 'End exemption' : 'Lift', () => change('DELETE', entry, 'The entry is lifted.'), 'small', key);
  const exempt = writeButton('Lift and exempt', () => change('POST', entry, 'The client is exempt for 7 days.'), 'small', key);
  return h('div', { class: 'tools' }, lift, entry.mode === 'exempt' ? null : exempt);
}

async function change(method, entry, done) {
  const id = encodeURIComponent(entry.id);
  try {
    if (method === 'DELETE') await call('DELETE', `lists/${id}`);
    else await call('POST', `automatic/${id}/exempt`, { reason: 'lifted and exempt on the dashboard' });
    say(done);
  } catch (error) {
    say(error.message, 'bad');
  }
  refresh('lists', 'audit');
}
