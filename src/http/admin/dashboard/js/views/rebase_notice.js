// Notices about a newer version than the edited one, and about the result of a rebase.

import { all } from '../observable.js';
import { button, notice } from '../controls.js';
import { h, redraw } from '../dom.js';
import { draft } from '../draft.js';
import { say } from '../messages.js';
import { data } from '../poll.js';
import { rebase } from './rebase.js';
import { versionDiff } from './version_dialogs.js';

/** `done` is called after a rebase. */
export function newerNotice(done) {
  const node = h('div', { 'aria-live': 'polite' });
  const update = () => {
    const version = data.status.get()?.rules.version;
    const isNewer = draft.isLoaded() && draft.isChanged() && version > (draft.base ?? 0);
    node.hidden = !isNewer;
    redraw(node, isNewer ? `${version} ${draft.base}` : '', () => (isNewer ? show(version) : []));
  };
  const show = (version) => notice('warn',
    h('p', {}, h('span', { class: 'strong' }, `Version ${version} was made while you edit version ${draft.base ?? 'none'}. `),
      'Your edits are kept; rebase them before you apply.'),
    button('See what changed', () => versionDiff(version, draft.base ?? undefined)),
    button('Rebase my edit', () => rebase().then((rebased) => done({ rebased }), (error) => say(error.message, 'bad')), 'primary'));
  return { node, stop: all(data.status.subscribe(update), draft.changed.subscribe(update)) };
}

export function rebasedNotice({ version, conflicts }) {
  const name = `version ${version.number} by ${version.author}`;
  if (conflicts.length === 0) {
    return notice('ok', h('p', {}, `Your edit is based on ${name} now: both changes are in it. Review it again, then apply.`));
  }
  return notice('bad', h('p', {}, h('span', { class: 'strong' }, `You and ${version.author} changed the same lines in ${conflicts.join(', ')}. `),
    'Both texts are kept: yours after ', h('code', {}, '<<<<<<<'), ', theirs after ', h('code', {}, '======='),
    '. Keep the right lines and delete the conflict markers.'));
}
