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
  #spare: Worker | undefined;
  #cancel: (() => void) | undefined;

  // The module may still be being compiled; what is asked meanwhile waits for it.
  constructor(private readonly module: Promise<WebAssembly.Module>, source: string) {
    this.#script = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  }

  // Start a worker for the next run. If it fails to start, it is forgotten: the run then starts another one, and reports its failure.
  warm(): void {
    if (this.#spare) return;
    const worker = new Worker(this.#script);
    worker.onerror = () => {
      if (this.#spare === worker) this.#spare = undefined;
    };
    this.#spare = worker;
  }

  cancel(): void {
    this.#cancel?.();
  }

  // Run a command line, after cancelling the one that runs.
  run(words: string[], files: Job['files'], progress: (bytes: number) => void): Promise<Outcome> {
    this.cancel();
    return new Promise((resolve) => {
      this.warm();
      const worker = this.#spare!;
      this.#spare = undefined;
      const end = (result: Outcome) => {
        worker.terminate();
        this.#cancel = undefined;
        resolve(result);
        setTimeout(() => this.warm());
      };
      this.#cancel = () => end({ kind: 'cancelled' });
      worker.onerror = (event) => end({ kind: 'failed', reason: event.message || 'the worker has ended', isMemory: /memory/i.test(event.message) });
      worker.onmessage = (event: MessageEvent<Report>) => {
        if (event.data.kind === 'progress') progress(event.data.bytes);
        else end(event.data);
      };
      this.module.then((module) => worker.postMessage({ module, words, files } satisfies Job),
        (reason: unknown) => end({ kind: 'failed', reason: `this browser cannot compile the module: ${String(reason)}`, isMemory: false }));
    });
  }
}
