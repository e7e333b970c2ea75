#!/usr/bin/env python3
"""rotary.py [--check]: the rotary frequencies that transformers computes, for tests/unit/test_rotary.c.

    python tests/torch/rotary.py > tests/torch/rotary.txt

needs torch and transformers. Each line: sequence, a config.json, "|", the factor of cosines and sines, the frequencies. With
--check the numbers must be those of rotary.txt.
"""
import json
import pathlib
import sys

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

KNOWN = pathlib.Path(__file__).with_suffix(".txt")
NEAR = 1e-6  # relative
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


def rotary_keys(parameters, positions=None):
    """As the version reads them: transformers 5 has one key for what are two before, and takes the model's `positions` for the original
    ones where these are missing."""
    if int(transformers.__version__.split(".")[0]) >= 5:
        return {"rope_parameters": parameters}
    scaling = {key: value for key, value in parameters.items() if key != "rope_theta"}
    if scaling.get("rope_type") == "llama3":
        scaling.setdefault("original_max_position_embeddings", positions)
    return {**({"rope_theta": parameters["rope_theta"]} if "rope_theta" in parameters else {}), "rope_scaling": scaling}


def rows():
    """What is written into a line before the bar, and the numbers after it."""
    for sequence, keys in scalings():
        keys = {"model_type": "llama", **SIZES, **keys}
        given = json.loads(json.dumps(keys))
        given.update(rotary_keys(given.pop("rope_parameters"), given.get("max_position_embeddings")) if "rope_parameters" in given else {})
        rotary = LlamaRotaryEmbedding(transformers.LlamaConfig(**given))
        rotary(torch.zeros(1), torch.arange(sequence)[None])
        yield f"{sequence} {json.dumps(keys)}", [rotary.attention_scaling, *rotary.inv_freq.tolist()]


def check():
    known = [line.split(" | ") for line in KNOWN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found = list(rows())
    wrong = [name for name, _ in found] != [name for name, _ in known]
    for (name, numbers), (_, old) in zip(found, known):
        apart = max(abs(number - float(was)) / max(abs(float(was)), 1e-12) for number, was in zip(numbers, old.split()))
        wrong |= apart > NEAR
        print(f"{'ok' if apart <= NEAR else 'not ok'} - {name}: {apart:.2g} apart")
    return int(wrong)


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}")
    for name, numbers in rows():
        print(name, "|", f"{numbers[0]:.12g}", " ".join(f"{number:.9g}" for number in numbers[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
