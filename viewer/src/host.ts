// What a page tells the page around it: tessera.html shows it in a frame (viewer/web/frame.ts). Elsewhere nobody listens.

export type News = { tessera: 'drag'; isOver: boolean } | { tessera: 'drop'; files: File[] } | { tessera: 'out of memory' };

/** The run ran out of memory, for example. */
export function tellHost(news: News): void {
  if (parent !== window) parent.postMessage(news, '*');
}

/** Files that are dragged over this page, or dropped on it, are for the page around it. */
export function handOnFiles(): void {
  if (parent === window) return;
  addEventListener('dragenter', () => tellHost({ tessera: 'drag', isOver: true }));
  addEventListener('dragleave', (event) => event.relatedTarget || tellHost({ tessera: 'drag', isOver: false }));
  addEventListener('dragover', (event) => event.preventDefault());
  addEventListener('drop', (event) => {
    event.preventDefault();
    const items = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === 'file' && !item.webkitGetAsEntry()?.isDirectory);
    tellHost({ tessera: 'drop', files: items.map((item) => item.getAsFile()).filter((file) => !!file) });
  });
}
