#!/usr/bin/env python3
"""Record the rotary frequencies that transformers computes, for tests/unit/test_rotary.c.

    python tests/torch/rotary.py > tests/torch/rotary.txt

needs torch and transformers 5. Each line: sequence, a config.json, "|", the factor of cosines and sines, the frequencies.
"""
import json
import sys

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SIZES = {"vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def scalings():
    yield 64, {"rope_theta": 500000.0}
    yield 64, {"rope_scaling": {"type": "linear", "factor": 2.5}}
    yield 64, {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20000.0}}
    yield 64, {"max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    yield 200, {"max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    yield 64, {"rope_theta": 500000.0, "max_position_embeddings": 131072, "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}}
    yield 64, {"max_position_embeddings": 256, "rope_parameters": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 3.0, "rope_theta": 1000.0}}
    yield 64, {"max_position_embeddings": 4096, "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}}
    yield 64, {"max_position_embeddings": 4096, "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "rope_theta": 150000.0,
        "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}}
    yield 64, {"max_position_embeddings": 4096, "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "mscale": 0.7,
        "mscale_all_dim": 1.2}}
    yield 64, {"max_position_embeddings": 64, "rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.5}}


def main():
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}")
    for sequence, keys in scalings():
        keys = {"model_type": "llama", **SIZES, **keys}
        rotary = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(keys))))
        rotary(torch.zeros(1), torch.arange(sequence)[None])
        numbers = " ".join(f"{number:.9g}" for number in rotary.inv_freq.tolist())
        print(sequence, json.dumps(keys), "|", f"{rotary.attention_scaling:.12g}", numbers)


if __name__ == "__main__":
    sys.exit(main())
