// A stack, spelled out: the program's frames, or all; to be copied.

import { copy, h, replace } from './dom.ts';
import type { Names } from './names.ts';

function frameRow(names: Names, frame: number): HTMLElement {
  const line = names.frameLine[frame]!;
  const file = names.file(frame);
  const origin = names.frameOrigin[frame]!;
  return h(
    'li',
    { class: origin <= 1 ? 'own' : 'other' },
    h('span', { class: 'fn' }, names.name(frame)),
    h('span', { class: 'file' }, file === '??' ? '' : `${file}${line > 0 ? `:${line}` : ''}`),
  );
}

export function copyButton(label: string, text: () => string): HTMLElement {
  const button = h('button', {
    type: 'button',
    onclick: async (e: MouseEvent) => {
      e.stopPropagation();
      button.textContent = (await copy(text())) ? 'copied' : 'not copied';
      setTimeout(() => (button.textContent = label), 1200);
    },
  }, label);
  return button;
}

/** Who shows stacks: their names, and whether all frames are shown. */
export interface StackOwner {
  names: Names;
  state: { allFrames: boolean };
  store: { set: (patch: { allFrames: boolean }) => void };
}

/** Innermost first, as one reads a traceback from where it happened. */
export function stackView(app: StackOwner, node: number): HTMLElement {
  const { names } = app;
  if (node < 0) return h('p', { class: 'muted' }, 'No stack was recorded for this memory.');
  const list = h('ol', { class: 'stack' });
  const all = h('button', { type: 'button', onclick: (e: MouseEvent) => {
    e.stopPropagation();
    app.store.set({ allFrames: !app.state.allFrames });
    draw();
  } });
  const draw = () => {
    const every = names.frames(node);
    const frames = app.state.allFrames ? every : names.own(node);
    replace(list, ...[...frames].reverse().map((f) => frameRow(names, f)));
    all.textContent = app.state.allFrames ? 'your frames only' : `all ${every.length} frames`;
  };
  draw();
  return h('div', { class: 'stack-view' }, h('div', { class: 'buttons' }, copyButton('copy stack', () => names.text(node)), all), list);
}
