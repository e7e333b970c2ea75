#!/usr/bin/env bash
# build-along.sh TESSERA FOLDER: a model that does not fit, and four techniques, one after the other, until it
# does. Each row is executed with a small model, to see that the prediction holds, and predicted for a large
# one: 24 blocks of width 2,048, batches of 16 sequences of 1,024 tokens, on a card with 24 GiB.
#
# The tables of tutorials end with two rows of ZeRO on several GPUs. Here these are what one GPU can do instead:
# the same tensors leave the device, for the host.
set -euo pipefail

[[ $# -eq 2 ]] || {
  echo 'usage: build-along.sh TESSERA FOLDER' >&2
  exit 2
}
tessera=$(realpath "$1")
mkdir -p "$2"
cd "$2"

# model WIDTH BLOCKS HEADS VOCABULARY POSITIONS: a config.json, without dropout.
model() {
  printf '{"model_type": "gpt2", "n_embd": %d, "n_layer": %d, "n_head": %d, "vocab_size": %d, ' "${@:1:4}"
  printf '"n_positions": %d, "tie_word_embeddings": false, ' "$5"
  printf '"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}\n'
}
model 192 6 6 2048 128 >small.json
model 2048 24 32 50257 1024 >large.json
seq -s ' ' 1 20000 >numbers.txt

# number KEY: its first value in the JSON on standard input.
number() {
  sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" | sed -n 1p
}

gib() {
  awk -v bytes="$1" 'BEGIN { printf "%.2f GiB", bytes / 1073741824 }'
}

common=(--no-kv-cache --gelu fused)

# row NAME OPTION...
row() {
  local name=$1 run measured predicted simulated large fits
  shift
  run=$("$tessera" train small.json --book torch --data numbers.txt --batch 4 --seq 128 --steps 3 --json -q "${common[@]}" "$@")
  run=${run##*$'\n'} # the last line
  measured=$(number peak_bytes <<<"$run")
  predicted=$(number predicted_peak_bytes <<<"$run")
  simulated=$("$tessera" simulate small.json --batch 4 --seq 128 --steps 3 --json -q "${common[@]}" "$@" |
    sed -n '/"peak": {/,/}/p' | number allocated_bytes)
  [[ $measured == "$predicted" && $measured == "$simulated" ]] || {
    echo "build-along: $name: predicted $predicted and $simulated bytes, measured $measured" >&2
    exit 1
  }
  large=$("$tessera" simulate large.json --batch 16 --seq 1024 --steps 2 --json -q "${common[@]}" "$@" |
    sed -n '/"peak": {/,/}/p' | number allocated_bytes)
  fits=yes
  "$tessera" simulate large.json --batch 16 --seq 1024 --steps 2 --capacity 24GiB --json -q "${common[@]}" "$@" |
    grep -q '"fits": true' || fits=no
  printf '%-40s %12d %12d %6d   %10s  %s\n' "$name" "$predicted" "$measured" $((measured - predicted)) \
    "$(gib "$large")" "$fits"
}

printf '%-40s %12s %12s %6s   %10s  %s\n' '' 'predicted' 'measured' 'apart' 'large' 'in 24 GiB'
row 'fp32, nothing saved'
checkpointed=(--checkpoint full)
row '+ checkpointing of each block' "${checkpointed[@]}"
mixed=("${checkpointed[@]}" --dtype autocast-fp16)
row '+ mixed precision (fp16, loss scaling)' "${mixed[@]}"
row '+ optimizer and gradients on the host' "${mixed[@]}" --offload optimizer,gradients
row '+ parameters, activations; chunked loss' "${mixed[@]}" \
  --offload optimizer,gradients,parameters,activations --loss chunked:1024

count=$("$tessera" simulate large.json --seq 16 --steps 1 --json -q | number parameters)
printf '\nThe large model has %s parameters.\n' "$count"
