// What a page tells the page around it: tessera.html shows it in a frame (viewer/web/frame.ts). Elsewhere nobody listens.

export type News = { tessera: 'drag' } | { tessera: 'out of memory' };

/** Files are dragged over this page; the run ran out of memory. */
export function tellHost(news: News): void {
  if (parent !== window) parent.postMessage(news, '*');
}
