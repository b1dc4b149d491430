// The list of a draft's files.

import { button, field } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h, redraw } from '../dom.js';
import { draft } from '../draft.js';

export function fileList({ open }) {
  const list = h('ul');
  let current = null;

  function update(name, problems) {
    current = name;
    const files = draft.names().map((file) => [file, state(file), problems.filter((one) => one.file === file && one.severity === 'error').length]);
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.file : null;
    redraw(list, JSON.stringify([name, files]), () => files.map(([file, how, errors]) => h('li', {},
      h('button', { type: 'button', 'aria-current': file === name && 'true', data: { file }, on: { click: () => open(file) } }, file,
        h('span', { class: 'marks' }, errors > 0 && h('span', { class: 'bad' }, `✕ ${errors}`, h('span', { class: 'unseen' }, ' problems')),
          how && h('span', { class: 'muted' }, ` ${how}`))))));
    if (focused !== null) [...list.querySelectorAll('button')].find((one) => one.dataset.file === focused)?.focus();
    drop.textContent = name in draft.files ? 'Delete' : 'Restore';
    drop.hidden = name === null;
  }

  function add() {
    const name = h('input', { type: 'text', required: true, placeholder: 'teams/search.yaml', pattern: '[^\\s]+\\.ya?ml' });
    openDialog({
      title: 'New file',
      content: field('Name', name, 'A path that ends in .yaml or .yml.'),
      label: 'Add',
      submit: () => {
        const file = name.value.trim();
        if (draft.names().includes(file)) throw new Error('A file with this name exists.');
        draft.edit(file, 'domain: \ndescriptors:\n  - key: \n    rate_limit:\n      unit: minute\n      requests_per_unit: 100\n');
        open(file);
        return true;
      },
    });
  }

  function toggle() {
    if (current in draft.files) draft.remove(current);
    else draft.discard(current);
    if (draft.names().includes(current)) open(current);
  }

  const drop = button('Delete', toggle, 'quiet small');
  const node = h('nav', { class: 'files', 'aria-label': 'Files' }, list,
    h('div', { class: 'row' }, button('New file…', add, 'quiet small'), drop));
  return { node, update };
}

function state(file) {
  if (!(file in draft.files)) return 'deleted';
  if (!(file in draft.origin)) return 'new';
  return draft.isFileChanged(file) ? 'edited' : '';
}
