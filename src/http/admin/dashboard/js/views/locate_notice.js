// Selects the limit of a rule in the editor.

import { notice } from '../controls.js';
import { h } from '../dom.js';
import { draft } from '../draft.js';
import { findLimit } from '../locate.js';
import { matches } from '../merge.js';

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
