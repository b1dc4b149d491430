// Active bans of counters, which rules with `ban` impose.

import { call, query } from '../api.js';
import { badge, head, panel, troubles, viewerNotice, writeButton } from '../controls.js';
import { writeDescriptor } from '../descriptor.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { date, until } from '../format.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { paged } from '../paging.js';
import { refresh } from '../poll.js';
import { table } from '../table.js';

const keyOf = (ban) => writeDescriptor(ban.descriptor) + (ban.is_truncated ? '…' : '');

export function bans() {
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
  const pages = paged(list, { resource: 'bans', label: 'Show further bans', limit: 500, hasTokens: true });
  const viewer = viewerNotice();
  const trouble = troubles('bans');

  const node = h('div', { class: 'view' },
    head('Bans', 'Clients that a rule with ban denies until the end. With watch, nothing is denied. Automatic entries of the deny list are on Runtime changes.'),
    viewer.node, trouble.node, panel('Active bans', '', list.node), h('div', { class: 'row' }, pages.more));
  return { title: 'Bans', node, stop: all(viewer.stop, trouble.stop, pages.stop) };

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
        pages.drop(ban);
        refresh('bans', 'audit');
        return true;
      },
    });
  }
}
