// The way from a draft to rules in force, and why it is closed when it is.

import { button } from '../controls.js';
import { openDialog } from '../dialog.js';
import { h } from '../dom.js';
import { draft } from '../draft.js';
import { say } from '../messages.js';
import { WHY_NOT, mayWrite } from '../session.js';
import { isEditable } from './source_notice.js';

export function applyBar({ checks, apply, discard, show }) {
  const forward = button('Review and apply…', press, 'primary');
  const back = button('Discard edit…', ask);

  function closed() {
    const result = checks.result.get();
    if (mayWrite() === false) return WHY_NOT;
    if (isEditable() === false) return 'The rules come from elsewhere, and are changed there.';
    if (!draft.isChanged()) return 'Nothing has been changed yet.';
    if (result?.state === 'checked' && !result.answer.is_valid) return 'There are problems to be solved first.';
    return null;
  }

  function press() {
    const why = closed();
    if (!why) return apply();
    say(why, 'bad');
    if (mayWrite() && isEditable()) show();
  }

  function ask() {
    if (!draft.isChanged()) return say('There is no edit to discard.');
    openDialog({
      title: 'Discard your edit?',
      content: h('p', {}, 'What you typed is lost, and the files are as they are in force.'),
      label: 'Discard',
      danger: true,
      submit: () => {
        discard();
        return true;
      },
    });
  }

  function update() {
    const why = closed();
    forward.title = why ?? '';
    if (why) forward.setAttribute('aria-disabled', 'true');
    else forward.removeAttribute('aria-disabled');
    back.hidden = !draft.isChanged();
  }

  update();
  return { node: h('div', { class: 'row' }, back, forward), update };
}
