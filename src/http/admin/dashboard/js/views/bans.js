// Active bans of counters, which rules with `ban` impose.

import { call, query } from '../api.js';
import { all } from '../observable.js';
import { badge, button, head, panel, troubles, viewerNotice, writeButton } from '../controls.js';
import { writeDescriptor } from '../descriptor.js';
import { busy, openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { data, refresh, watch } from '../poll.js';
import { table } from '../table.js';

const keyOf = (ban) => writeDescriptor(ban.descriptor) + (ban.is_truncated ? '…' : '');

export function bans() {
  let further = [];
  let next;
  const list = table({
    caption: 'Active bans, the latest end first',
    keyOf: (ban) => ban.id,
    max: 2000,
    empty: 'No active bans. Rules with ban add them for clients that ignore Retry-After.',
    columns: [
      { id: 'mode', label: 'Mode', kind: 'tight', sort: (ban) => ban.mode, mark: (ban) => ban.mode,
        node: (get) => (get().mode === 'enforce' ? badge('enforce', 'bad') : badge('watch', 'warn')) },
      { id: 'key', label: 'Key', isHead: true, sort: keyOf,
        node: (get) => h('div', {}, h('span', { class: 'path' }, keyOf(get())),
          h('span', { class: 'below' }, `rule ${get().rule} of ${get().domain}`)) },
      { id: 'level', label: 'Level', kind: 'numeric', sort: (ban) => ban.level, text: (ban) => String(ban.level) },
      { id: 'began', label: 'Began', sort: (ban) => ban.began_at_ms, text: (ban) => date(ban.began_at_ms) },
      { id: 'end', label: 'Ends', sort: (ban) => ban.ends_at_ms, text: (ban) => until(ban.ends_at_ms) },
      { id: 'do', label: 'Actions', isBare: true, node: (get) => h('div', { class: 'tools' },
        writeButton('Lift…', () => remove(get(), false), 'small', keyOf(get())),
        writeButton('Forgive…', () => remove(get(), true), 'small', keyOf(get()))) },
    ],
    order: { id: 'end', isDescending: true },
  });
  const more = button('Show further bans', load, '', { hidden: true });
  const viewer = viewerNotice();
  const trouble = troubles('bans');
  const first = () => data.bans.get()?.bans ?? [];
  const shown = () => {
    const ids = new Set(first().map((ban) => ban.id));
    return [...first(), ...further.filter((ban) => !ids.has(ban.id))];
  };
  const draw = () => {
    more.hidden = (next === undefined ? data.bans.get()?.next ?? null : next) === null;
    list.update(shown());
  };
  const stop = all(viewer.stop, trouble.stop, watch('bans'), data.bans.subscribe((answer) => answer && draw()));

  async function load() {
    busy(more, true);
    try {
      const page = await call('GET', query('bans', { before: next ?? data.bans.get()?.next, limit: 500 }));
      further = [...further, ...page.bans];
      next = page.next;
      draw();
    } catch (error) {
      say(error.message, 'bad');
    }
    busy(more, false);
  }

  const node = h('div', { class: 'view' },
    head('Bans', 'Clients that a rule with ban denies until the end. With watch, nothing is denied. Entries of the deny list are on Lists.'),
    viewer.node, trouble.node, panel('Active bans', '', list.node), h('div', { class: 'row' }, more));
  return { title: 'Bans', node, stop };

  function remove(ban, isForgiven) {
    openDialog({
      title: isForgiven ? 'Forgive the client?' : 'Lift the ban?',
      content: [h('p', {}, h('code', {}, keyOf(ban)), ` by rule ${ban.rule} of ${ban.domain}.`),
        h('p', { class: 'muted' }, isForgiven
          ? 'The rule limits its requests as any others. A later ban has the first duration again.'
          : `The rule limits its requests as any others. A later ban is longer: this one had level ${ban.level}.`)],
      label: isForgiven ? 'Forgive' : 'Lift',
      danger: true,
      submit: async () => {
        await call('DELETE', query(`bans/${encodeURIComponent(ban.id)}`, { forgive: isForgiven || undefined }));
        say(isForgiven ? 'Client forgiven.' : 'Ban lifted.');
        further = further.filter((other) => other.id !== ban.id);
        refresh('bans', 'audit');
        return true;
      },
    });
  }
}
