// Notice about the source of rules that are not editable here.

import { notice } from '../controls.js';
import { h } from '../dom.js';
import { data } from '../poll.js';

/** Whether changes can be applied here; undefined before the first response. */
export const isEditable = () => data.status.get()?.is_editable;

export function sourceNotice() {
  const node = notice('', h('div', { class: 'stack' },
    h('p', {}, h('span', { class: 'strong' }, 'The rules come from a directory or a control plane; change them there. '),
      'Edits here can be validated, compared and tried, but not applied.'),
    h('p', {}, 'To change rules here, start tollgate with ', h('code', {}, '--rules redis'),
      ' (shared by all instances) or ', h('code', {}, '--rules memory'), ' (this instance alone).')));
  const stop = data.status.subscribe(() => (node.hidden = isEditable() !== false));
  node.hidden = isEditable() !== false;
  return { node, stop };
}
