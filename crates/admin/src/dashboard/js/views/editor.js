// The editor of rules: files, one of them open, and their problems.

import { changedLines } from '../changed_lines.js';
import { codeField } from '../code_field.js';
import { head, notice, viewerNotice } from '../controls.js';
import { h } from '../dom.js';
import { draft } from '../draft.js';
import { all } from '../observable.js';
import { data } from '../poll.js';
import { validator } from '../validator.js';
import { applyBar, applyDialog } from './apply.js';
import { fileList } from './editor_files.js';
import { locateNotice, newerNotice, rebasedNotice, rolloutNotice, sourceNotice } from './notices.js';
import { checkedLine, problemList } from './problems.js';

export function editor(parameters) {
  let open = null;
  const checks = validator();
  const code = codeField({ label: 'Rules of the open file', changed: (text) => draft.edit(open, text) });
  const files = fileList({ open: openFile });
  const checked = checkedLine();
  const problems = problemList(({ file, line }) => { openFile(file); code.choose(Math.max(1, line)); });
  const notices = h('div', { class: 'stack', 'aria-live': 'polite' });
  const bar = applyBar({ checks, apply: () => applyDialog(reasons(), done), discard, show: problems.focus });
  const newer = newerNotice(done);
  const [source, viewer] = [sourceNotice(), viewerNotice()];

  /** Guardrails that the present files violate; unknown while they are checked. */
  const reasons = () => (checks.result.get()?.state === 'checked' ? checks.result.get().answer.reasons : []);

  function openFile(name) {
    open = name;
    const isDeleted = !(name in draft.files);
    code.area.readOnly = isDeleted;
    code.area.setAttribute('aria-label', `Rules in ${name}`);
    code.load(draft.files[name] ?? draft.origin[name] ?? '');
    mark();
    files.update(open, found());
  }

  const found = () => checks.result.get()?.answer?.problems ?? [];

  function mark() {
    const lines = changedLines(draft.origin[open], draft.files[open] ?? '');
    code.mark([
      ...(lines.length < 2000 ? lines.map((line) => ({ line, kind: 'changed' })) : []),
      ...found().filter(({ file, line }) => file === open && line).map(({ line, severity }) => ({ line, kind: severity })),
    ]);
  }

  function draw(result) {
    checked.update(result);
    problems.update(found());
    mark();
    files.update(open, found());
    bar.update();
  }

  function changed() {
    if (!draft.isLoaded()) return;
    checks.check(draft.files);
    if (open !== null) {
      if (!draft.names().includes(open)) return openFile(draft.names()[0] ?? null);
      mark();
      files.update(open, found());
    }
    bar.update();
  }

  function discard() {
    draft.discard();
    notices.replaceChildren();
    openFile(draft.names().includes(open) ? open : draft.names()[0]);
  }

  /** Shows the outcome of applying or rebasing. */
  function done({ applied, problems: wrong, rebased }) {
    notices.replaceChildren();
    if (wrong) checks.result.set({ state: 'checked', answer: { is_valid: false, problems: wrong, reasons: [] } });
    if (applied) notices.append(rolloutNotice(applied));
    if (rebased) notices.append(rebasedNotice(rebased, draft));
    const conflict = rebased?.conflicts[0];
    openFile(conflict ?? open);
    if (conflict) code.choose(code.area.value.split('\n').findIndex((line) => line.startsWith('<<<<<<<')) + 1);
    else if (rebased) applyDialog(reasons(), done);
  }

  async function begin() {
    try {
      await draft.load();
    } catch (error) {
      return notices.replaceChildren(notice('bad', h('p', {}, `Cannot load the rules: ${error.message}`)));
    }
    const wanted = parameters.get('file');
    openFile(draft.names().includes(wanted) ? wanted : draft.names()[0] ?? null);
    checks.check(draft.files);
    if (parameters.has('line')) notices.replaceChildren(...locateNotice(parameters, code));
  }

  /** Loads the current version into an editor without edits. */
  async function follow(status) {
    const isBehind = draft.isLoaded() && status?.rules.version > (draft.base ?? 0);
    if (!isBehind || draft.isChanged()) return;
    await draft.load().catch(() => {});
    if (open !== null && draft.names().includes(open)) openFile(open);
  }

  const stop = all(checks.stop, source.stop, viewer.stop, newer.stop, checks.result.subscribe((result) => result && draw(result)),
    draft.changed.subscribe(changed), data.status.subscribe(follow), data.me.subscribe(() => bar.update()));
  const node = h('div', { class: 'view' }, head('Editor', 'Edit rules. They are validated as you type, and become active when you apply them.'),
    source.node, viewer.node, newer.node, notices,
    h('section', { class: 'panel', 'aria-label': 'Rule files' },
      h('div', { class: 'editor' }, files.node, code.node), problems.node,
      h('div', { class: 'checked' }, checked.node, bar.node)));
  return { title: 'Editor', node, stop, ready: () => { node.querySelector('h1').focus({ preventScroll: true }); begin(); } };
}
