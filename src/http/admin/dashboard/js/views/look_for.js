// Brings somebody who wants another limit for a rule to the place where it is written.

import { notice } from '../controls.js';
import { h } from '../dom.js';
import { draft } from '../draft.js';
import { findLimit } from '../locate.js';
import { matches } from '../merge.js';

/** Selects the number of the rule that the address names; gives what is to be said about it. */
export function lookFor(parameters, code) {
  const file = parameters.get('file');
  const name = [parameters.get('domain'), parameters.get('rule')].filter(Boolean).join('.') || 'the rule';
  const line = hereNow(file, Number(parameters.get('line')));
  if (!line) return [notice('warn', h('p', {}, `Your edit has changed where ${name} is written: look for it below.`))];
  const found = findLimit(code.area.value, line);
  if (!found) {
    code.choose(line);
    return [notice('', h('p', {}, `This is ${name}. It states no number of its own: it may have none, or share one (`,
      h('code', {}, '<<'), ', ', h('code', {}, '*'), ').'))];
  }
  code.choose(found.line, found.from, found.to);
  const shared = found.isShared ? ' Other rules share this number, and change with it.' : '';
  return [notice(found.isShared ? 'warn' : '', h('p', {}, 'The limit of ', h('code', { class: 'strong' }, name),
    ` is selected, on line ${found.line}: type the new number, then review and apply.${shared}`))];
}

/** Where a line of the version in force is in the edit; 0 when it is no more. */
function hereNow(file, line) {
  const [origin, text] = [draft.origin[file], draft.files[file]];
  if (origin === undefined || text === undefined) return 0;
  return origin === text ? line : (matches(origin.split('\n'), text.split('\n'))[line - 1] ?? -1) + 1;
}
