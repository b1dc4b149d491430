// Where the rules come from, when they can't be changed here, and what to do about that.

import { notice } from '../controls.js';
import { h } from '../dom.js';
import { data } from '../poll.js';

/** Whether changes can be applied here; undefined before that is known. */
export const isEditable = () => data.status.get()?.is_editable;

export function sourceNotice() {
  const node = notice('', h('div', { class: 'stack' },
    h('p', {}, h('span', { class: 'strong' }, 'The rules come from files in a directory or from a control plane, so they are changed there. '),
      'What is typed in the editor can be checked, compared and tried, but not applied.'),
    h('p', {}, 'To change rules here, start tollgate with ', h('code', {}, '--rules redis'),
      ' (shared by all instances) or ', h('code', {}, '--rules memory'), ' (this instance alone).')));
  const stop = data.status.subscribe(() => (node.hidden = isEditable() !== false));
  node.hidden = isEditable() !== false;
  return { node, stop };
}
