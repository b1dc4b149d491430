// Notices about the rules: their source, the progress of a version, rebases of an edit, and the limit that is selected.

import { call } from '../api.js';
import { button, notice } from '../controls.js';
import { h, redraw, text } from '../dom.js';
import { draft } from '../draft.js';
import { plural } from '../format.js';
import { findLimit } from '../locate.js';
import { matches, mergeFiles } from '../merge.js';
import { say } from '../messages.js';
import { all } from '../observable.js';
import { data } from '../poll.js';
import { versionDiff } from './version_dialogs.js';

/** Shows the number of instances on which a version is active, until it is active on all. */
export function rolloutNotice({ number }) {
  const line = h('p', { role: 'status' });
  const stop = data.status.subscribe((status) => {
    if (!status) return;
    const all = status.instances.length;
    const updated = status.instances.filter((one) => one.version >= number).length;
    const isHere = status.rules.version >= number;
    const isDone = isHere && updated === all;
    text(line, isDone ? `Version ${number} is active on ${all > 1 ? `all ${all} instances` : 'this instance'}.`
      : `Version ${number} is current, and active on ${updated} of ${plural(all, 'instance', 'instances')} so far.`);
    if (isDone) queueMicrotask(() => stop());
  });
  return notice('ok', line);
}

/** Whether changes can be applied here; undefined before the first response. */
export const isEditable = () => data.status.get()?.is_editable;

export function sourceNotice() {
  const node = notice('', h('div', { class: 'stack' }));
  const update = (status) => {
    node.hidden = isEditable() !== false;
    const region = status?.rules.copy?.region ?? '';
    redraw(node.firstChild, `${node.hidden}${region}`, () => (region ? ofRegion(region) : ofFiles()));
  };
  const stop = data.status.subscribe(update);
  update(data.status.get());
  return { node, stop };
}

const ofRegion = (region) => h('p', {}, h('span', { class: 'strong' }, `The rules are written in region ${region}; change them there. `),
  'Edits here can be validated, compared and tried, but not applied.');

const ofFiles = () => [
  h('p', {}, h('span', { class: 'strong' }, 'The rules come from a directory or a control plane; change them there. '),
    'Edits here can be validated, compared and tried, but not applied.'),
  h('p', {}, 'To change rules here, start tollgate with ', h('code', {}, '--rules redis'),
    ' (shared by all instances) or ', h('code', {}, '--rules memory'), ' (this instance alone).')];

/** Returns the new base version and the files with conflicts. */
export async function rebase() {
  const { version, files } = await call('GET', 'versions/current');
  const name = `version ${version.number} by ${version.author}`;
  const merged = mergeFiles(draft.origin, draft.files, files, name);
  draft.restart(version.number, files, merged.files);
  return { version, conflicts: merged.conflicts };
}

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

/** Selects the limit of the rule in the page address; returns a notice about it. */
export function locateNotice(parameters, code) {
  const file = parameters.get('file');
  const name = [parameters.get('domain'), parameters.get('rule')].filter(Boolean).join('.') || 'the rule';
  const line = editedLine(file, Number(parameters.get('line')));
  if (!line) return [notice('warn', h('p', {}, `Your edits have changed the lines of ${name}; search for it below.`))];
  const found = findLimit(code.area.value, line);
  if (!found) {
    code.choose(line);
    return [notice('', h('p', {}, `This is ${name}. It has no limit of its own: it may be unlimited, or share one (`,
      h('code', {}, '<<'), ', ', h('code', {}, '*'), ').'))];
  }
  code.choose(found.line, found.from, found.to);
  const shared = found.isShared ? ' Other rules share this limit and change with it.' : '';
  return [notice(found.isShared ? 'warn' : '', h('p', {}, 'The limit of ', h('code', { class: 'strong' }, name),
    ` is selected, on line ${found.line}: type the new limit, then review and apply.${shared}`))];
}

/** The line of the edit that corresponds to a line of the current version; 0 if none. */
function editedLine(file, line) {
  const [origin, text] = [draft.origin[file], draft.files[file]];
  if (origin === undefined || text === undefined) return 0;
  return origin === text ? line : (matches(origin.split('\n'), text.split('\n'))[line - 1] ?? -1) + 1;
}
