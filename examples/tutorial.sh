#!/usr/bin/env bash
# tutorial.sh TESSERA FOLDER: the first half of PyTorch's tutorial on Mosaic, without a GPU and
# without PyTorch: GPT-2 trained for five steps, then again with activation checkpointing. What
# does checkpointing save, and where? Both runs are simulated; everything after that reads
# snapshots, and would read recorded ones the same way.
set -euo pipefail

[[ $# -eq 2 ]] || {
  echo 'usage: tutorial.sh TESSERA FOLDER' >&2
  exit 2
}
tessera=$(realpath "$1")
mkdir -p "$2"
cd "$2"

# Say what is run, then run it.
step() {
  printf '\n$ tessera %s\n' "$*"
  "$tessera" "$@"
}

run=(gpt2 --batch 4 --seq 512 --steps 5)
step simulate "${run[@]}" -o baseline.pickle
step simulate "${run[@]}" --checkpoint full -o checkpointed.pickle
step profile baseline.pickle
step profile checkpointed.pickle
step diff baseline.pickle checkpointed.pickle --top 3
step view baseline.pickle checkpointed.pickle -o page.html

cat <<END_OF_LIST

In $PWD:
  baseline.pickle, checkpointed.pickle   the two runs, as torch.cuda.memory._dump_snapshot() writes them:
                                         for tessera, Mosaic and https://pytorch.org/memory_viz
  page.html                              both on one axis; open it in a browser
END_OF_LIST
