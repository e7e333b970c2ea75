"""Recording: what `tessera.record` is made of.

    settings   what was asked for, by call or by environment
    backend    CUDA, XPU or Ascend: the one place that calls PyTorch's private memory functions
    files      names, writing without a half-written file, keeping the last K
    sidecar    the JSON beside each snapshot
    marks      steps, forward and backward, told by hooks
    recorder   one recording: when to write, and what
    answers    asking tessera about a file that was just written
    trackers   Weights & Biases, TensorBoard, MLflow

One rule holds everywhere: a training loop never sees an exception of ours, and never waits for the
GPU on our account. What goes wrong is logged once per kind (`guard`).
"""
