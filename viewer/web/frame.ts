// The page of `view` or `ranks` in a frame: it is made from a file that may be hostile, so it shares nothing with this page but messages
// (viewer/src/host.ts).

import { h } from '../src/dom.ts';
import type { News } from '../src/host.ts';

let current: { frame: HTMLIFrameElement; url: string; oom: () => void } | undefined;

const themeOf = () => (document.documentElement.dataset.theme === 'dark' ? 'dark' : 'light');

// The page in a frame. `oom` is called if its run ran out of memory.
export function frameOf(page: Blob, oom: () => void): HTMLIFrameElement {
  closeFrame();
  const url = URL.createObjectURL(new Blob([page], { type: 'text/html' }));
  const frame = h('iframe', { src: `${url}#theme=${themeOf()}`, title: 'memory over time', sandbox: 'allow-scripts allow-downloads allow-modals' });
  current = { frame, url, oom };
  return frame;
}

export function closeFrame(): void {
  if (current) URL.revokeObjectURL(current.url);
  current = undefined;
}

// Listen to the messages of frames, and pass changes of the theme on to the frame, in its address. To be called once.
export function listenToFrames(add: (files: File[]) => void): void {
  addEventListener('message', (event: MessageEvent<News | undefined>) => {
    if (!current || event.source !== current.frame.contentWindow) return;
    if (event.data?.tessera === 'drag') document.body.classList.toggle('dragging', event.data.isOver);
    if (event.data?.tessera === 'drop') {
      document.body.classList.remove('dragging');
      add(event.data.files);
    }
    if (event.data?.tessera === 'out of memory') current.oom();
  });
  new MutationObserver(() => {
    if (current) current.frame.src = `${current.url}#theme=${themeOf()}`;
  }).observe(document.documentElement, { attributeFilter: ['data-theme'] });
}
