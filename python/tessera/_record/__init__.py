"""Recording: the parts of `tessera.record`.

    settings   options, from the call or the environment
    backend    CUDA, XPU or Ascend: the one place that calls PyTorch's private memory functions
    files      names, writing without a half-written file, keeping the last K
    sidecar    the JSON file next to each snapshot
    marks      steps, forward and backward, detected by hooks
    recorder   one recording: what to write, and when
    steplog    a line about memory after each step
    answers    asking tessera about a file that was just written
    trackers   Weights & Biases, TensorBoard, MLflow

One rule holds everywhere: a training loop never sees an exception of ours, and never waits for the
GPU because of us. Each kind of failure is logged once (`guard`).
"""
