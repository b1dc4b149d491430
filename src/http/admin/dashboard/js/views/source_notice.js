// Notice about the source of rules that are not editable here.

import { notice } from '../controls.js';
import { h, redraw } from '../dom.js';
import { data } from '../poll.js';

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
