// One command line at a time in a worker of its own, so that it can be cancelled and its memory returns.

import type { Job, Report } from './worker.ts';

export type Done = Extract<Report, { kind: 'done' }>;
export type Failed = Extract<Report, { kind: 'failed' }>;
export interface Cancelled {
  kind: 'cancelled';
}

export type Outcome = Done | Failed | Cancelled;

export class Runner {
  readonly #script: string;
  // Started beforehand, so that a run need not wait for it.
  #spare: Worker;
  #cancel: (() => void) | undefined;

  constructor(private readonly module: WebAssembly.Module, source: string) {
    this.#script = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    this.#spare = new Worker(this.#script);
  }

  cancel(): void {
    this.#cancel?.();
  }

  // Run a command line, after cancelling the one that runs.
  run(words: string[], files: Job['files'], progress: (bytes: number) => void): Promise<Outcome> {
    this.cancel();
    return new Promise((resolve) => {
      const worker = this.#spare;
      const end = (result: Outcome) => {
        worker.terminate();
        this.#spare = new Worker(this.#script);
        this.#cancel = undefined;
        resolve(result);
      };
      this.#cancel = () => end({ kind: 'cancelled' });
      worker.onerror = (event) => end({ kind: 'failed', reason: event.message || 'the worker has ended', isMemory: /memory/i.test(event.message) });
      worker.onmessage = (event: MessageEvent<Report>) => {
        if (event.data.kind === 'progress') progress(event.data.bytes);
        else end(event.data);
      };
      worker.postMessage({ module: this.module, words, files } satisfies Job);
    });
  }
}
