#!/usr/bin/env python3
"""losses.py [--check]: what PyTorch computes, for tests/unit/test_torch.c: losses and gradient norms of training steps.

    python tests/torch/losses.py > tests/torch/losses.txt

needs torch and transformers (any release since 2.4 and 4.45; the first line of the file says which made it). With --check the
numbers must be those of losses.txt, as far as they are the same in all versions.
Weights and tokens come from a formula that the test has too, so that no other file is needed. Each line:
model, type, step from 1, loss, norm of all gradients (of steps in fp32; else 0).
"""
import pathlib
import sys

import numpy as np
import torch
import transformers

from rotary import rotary_keys

KNOWN = pathlib.Path(__file__).with_suffix(".txt")
# How far numbers may be apart, relative to the recorded ones: sums are in another order in other versions. Training makes that more.
NEAR = {"fp32": 2e-4, "bf16": 0.02}
VOCABULARY, BATCH, SEQUENCE = 96, 4, 24
MASK = (1 << 64) - 1


def uniform(key, count):
    """`count` numbers from -1 to 1: SplitMix64 of key * 2^32 + i."""
    z = np.arange(count, dtype=np.uint64) + np.uint64(key << 32)
    with np.errstate(over="ignore"):
        z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def batch_of(step):
    """Tokens that can be predicted in part: each is near the one before."""
    u = uniform(1000 + step, BATCH * SEQUENCE).reshape(BATCH, SEQUENCE)
    steps = np.floor((u + 1.0) * 3.0).astype(np.int64)
    return torch.tensor(np.cumsum(steps, axis=1) % VOCABULARY)


def models():
    yield "gpt2", transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=SEQUENCE, n_embd=48, n_layer=2, n_head=4,
                                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    yield "llama", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=2, intermediate_size=80, tie_word_embeddings=False))
    yield "stretched", transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=2, intermediate_size=80, max_position_embeddings=SEQUENCE,
                                 **rotary_keys({"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0,
                                                "beta_fast": 2.0, "original_max_position_embeddings": 6})))


def fill(model):
    for key, (name, parameter) in enumerate(model.named_parameters(), 1):
        u = torch.tensor(uniform(key, parameter.numel())).reshape(parameter.shape)
        centre = 1.0 if parameter.dim() == 1 and name.endswith("weight") else 0.0
        with torch.no_grad():
            parameter.copy_(centre + 0.1 * u)


def train(name, model, dtype, steps, clip=None):
    fill(model)
    model.train().to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for step in range(1, steps + 1):
        tokens = batch_of(step)
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        norm = 0.0
        if dtype == torch.float32:
            norm = sum(float(p.grad.double().pow(2).sum()) for p in model.parameters()) ** 0.5
        if clip:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item()
        optimizer.step()
        yield (name + ("-clipped" if clip else ""), "fp32" if dtype == torch.float32 else "bf16", str(step), f"{loss.item():.9g}",
               f"{norm:.9g}")


def rows():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for name, model in models():
        yield from train(name, model, torch.float32, 20)
        yield from train(name, model, torch.float32, 20, clip=1.0)
        if name != "stretched":
            yield from train(name, model, torch.bfloat16, 200)


def check():
    """Each row against the recorded one; the numbers of those that differ."""
    known = [tuple(line.split()) for line in KNOWN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found, most = list(rows()), {}
    wrong = [row[:3] for row in found] != [row[:3] for row in known]
    for row, old in zip(found, known):
        apart = max(abs(float(new) - float(was)) / max(abs(float(was)), 1e-9) for new, was in zip(row[3:], old[3:]))
        key = f"{row[0]} {row[1]}"
        most[key] = max(most.get(key, 0), apart)
    for key, apart in most.items():
        is_right = apart <= NEAR[key.split()[1]]
        wrong |= not is_right
        print(f"{'ok' if is_right else 'not ok'} - {key}: {apart:.2g} apart")
    return int(wrong)


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}, on a CPU")
    for row in rows():
        print(*row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
