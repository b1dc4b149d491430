// Tells an editor that somebody else has made a version since, and what came of rebasing.

import { all } from '../cell.js';
import { button, notice } from '../controls.js';
import { h, redraw } from '../dom.js';
import { draft } from '../draft.js';
import { say } from '../messages.js';
import { data } from '../poll.js';
import { rebase } from './rebase.js';
import { versionDiff } from './version_dialogs.js';

/** `done` hears of a rebase. */
export function newerNotice(done) {
  const node = h('div', { 'aria-live': 'polite' });
  const look = () => {
    const version = data.status.get()?.rules.version;
    const isNewer = draft.isLoaded() && draft.isChanged() && version > (draft.base ?? 0);
    node.hidden = !isNewer;
    redraw(node, isNewer ? `${version} ${draft.base}` : '', () => (isNewer ? tell(version) : []));
  };
  const tell = (version) => notice('warn',
    h('p', {}, h('span', { class: 'strong' }, `Version ${version} was made while you edit version ${draft.base ?? 'none'}. `),
      'Your text is kept; rebase it before you apply.'),
    button('See what changed', () => versionDiff(version, draft.base ?? undefined)),
    button('Rebase my edit', () => rebase().then((rebased) => done({ rebased }), (error) => say(error.message, 'bad')), 'primary'));
  return { node, stop: all(data.status.subscribe(look), draft.changed.subscribe(look)) };
}

export function rebasedNotice({ version, conflicts }) {
  const name = `version ${version.number} by ${version.author}`;
  if (conflicts.length === 0) {
    return notice('ok', h('p', {}, `Your edit is based on ${name} now: both changes are in it. Look at it once more, then apply.`));
  }
  return notice('bad', h('p', {}, h('span', { class: 'strong' }, `You and ${version.author} changed the same lines in ${conflicts.join(', ')}. `),
    'Both are there: yours after ', h('code', {}, '<<<<<<<'), ', theirs after ', h('code', {}, '======='),
    '. Keep what is right, and delete the marks.'));
}
