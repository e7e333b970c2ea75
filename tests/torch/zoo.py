#!/usr/bin/env python3
"""zoo.py [--check] [--seed N] [NAME..]: tessera.fit on small models of 32 classes of torchvision, transformers and timm.

For each model, with sizes that a seed draws: fit() with a budget below what the step takes changes nothing but the forward of modules. Ten
steps on the CPU have the losses, gradients, weights, buffers and random numbers of an untouched copy, to the bit, because the plans only
recompute and move. undo() restores the structure, training goes on the same, and fit() with another budget, then more steps, too.
`fused` compares models whose optimizer becomes a fused one, within the bound that docs/apply.md states. Needs the packages that
./run test torch installs. Nothing is written but what was left out: --left prints it as docs/apply.md has it.
"""
import argparse
import copy
import gc
import random
import sys
import traceback

import numpy as np
import timm
import torch
import torchvision
import transformers as hf

import tessera
from tessera import _fit

BOUND = 1e-3  # of weights, relative to the largest, after ten steps with a fused optimizer
STEPS, MORE = 10, 2


class Images:
    """Batches of images with a class each."""

    def __init__(self, size, most=64):
        self.size, self.most = size, most

    def __call__(self, rows, device):
        return {'x': torch.randn(rows, 3, self.size, self.size, device=device), 'y': torch.randint(0, 10, (rows,), device=device)}

    def loss(self, model, batch):
        out = model(batch['x'])
        outs = out if isinstance(out, tuple) else (out['out'] if isinstance(out, dict) else out,)
        losses = [torch.nn.functional.cross_entropy(one if one.dim() == 2 else one.mean((-2, -1)), batch['y']) for one in outs if one is not None]
        return sum(losses[1:], losses[0])


class Words:
    """Batches of a model of transformers, which computes its loss; `make` returns its arguments for these rows on this device."""

    def __init__(self, make, most=32):
        self.make, self.most = make, most

    def __call__(self, rows, device):
        return self.make(rows, device)

    def loss(self, model, batch):
        return model(**batch).loss


def tokens(length, decoder=False, labels=True):
    def make(rows, device):
        ids = torch.randint(3, 90, (rows, length), device=device)
        return {'input_ids': ids, **({'labels': ids} if labels else {}), **({'decoder_input_ids': ids} if decoder else {})}
    return Words(make)


def pixels(size, labels=10):
    return Words(lambda rows, device: {'pixel_values': torch.randn(rows, 3, size, size, device=device),
                                       'labels': torch.randint(0, labels, (rows,), device=device)})


# ---- torchvision ----

def vision(draw):
    net = torchvision.models
    some, classes = draw.randint(1, 2), {'num_classes': 10}
    mobile, efficient, inverted = net.mobilenetv2, net.efficientnet.MBConvConfig, net.mobilenetv3.InvertedResidualConfig
    return {
        'ResNet': lambda: (net.ResNet(net.resnet.BasicBlock, [1, some, 1, 1], **classes), Images(64)),
        'SqueezeNet': lambda: (net.SqueezeNet('1_1', **classes), Images(64)),
        'DenseNet': lambda: (net.DenseNet(growth_rate=8, block_config=(2, some + 1), num_init_features=16, drop_rate=0.1, **classes), Images(64)),
        'MobileNetV2': lambda: (mobile.MobileNetV2(inverted_residual_setting=[[1, 16, 1, 1], [6, 24, some, 2], [6, 32, 2, 2]], **classes), Images(64)),
        'MobileNetV3': lambda: (net.MobileNetV3([inverted(16, 3, 16, 16, True, 'RE', 2, 1, 1), inverted(16, 3, 72, 24, False, 'HS', 2, 1, 1),
                                                 *[inverted(24, 5, 88, 24, True, 'HS', 1, 1, 1)] * some], 64, dropout=0.2, **classes), Images(64)),
        'EfficientNet': lambda: (net.EfficientNet([efficient(1, 3, 1, 16, 16, 1, 1, 1), efficient(6, 3, 2, 16, 24, some, 1, 1), efficient(6, 5, 2, 24, 40, 2, 1, 1)],
                                                  dropout=0.2, stochastic_depth_prob=0.2, last_channel=64, **classes), Images(64)),
        'ShuffleNetV2': lambda: (net.ShuffleNetV2([some, 2, 1], [24, 48, 96, 192, 256], **classes), Images(64)),
        'RegNet': lambda: (net.RegNet(net.regnet.BlockParams.from_init_params(depth=3 + some, w_0=24, w_a=24, w_m=2.5, group_width=8, se_ratio=0.25),
                                      **classes), Images(64)),
        'GoogLeNet': lambda: (net.GoogLeNet(aux_logits=True, init_weights=False, **classes), Images(96, 16)),
        'ConvNeXt': lambda: (net.ConvNeXt([net.convnext.CNBlockConfig(24, 48, some), net.convnext.CNBlockConfig(48, None, 2)],
                                          stochastic_depth_prob=0.2, **classes), Images(64)),
        'SwinTransformer': lambda: (net.SwinTransformer([4, 4], 24, [2, some + 1], [2, 4], [4, 4], stochastic_depth_prob=0.2, dropout=0.1, **classes),
                                    Images(64)),
    }


# ---- transformers ----

def language(draw):
    width, layers = draw.choice((48, 64)), draw.randint(2, 3)
    small = {'hidden_size': width, 'intermediate_size': 2 * width, 'num_hidden_layers': layers, 'num_attention_heads': 4, 'vocab_size': 100}
    bart = {'vocab_size': 100, 'd_model': width, 'encoder_layers': layers, 'decoder_layers': 2, 'encoder_attention_heads': 4, 'decoder_attention_heads': 4,
            'encoder_ffn_dim': 96, 'decoder_ffn_dim': 96, 'max_position_embeddings': 128}
    length, ends = draw.choice((48, 64)), {'bos_token_id': 0, 'eos_token_id': 0}
    return {
        'GPT2': lambda: (hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=layers, n_embd=width, n_head=4, vocab_size=100, use_cache=False, **ends)), tokens(length)),
        'Llama': lambda: (hf.LlamaForCausalLM(hf.LlamaConfig(**small, num_key_value_heads=2, attention_dropout=0.1, use_cache=False)), tokens(length)),
        'GPTNeoX': lambda: (hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**small, hidden_dropout=0.1, attention_dropout=0.1, use_cache=False)), tokens(length)),
        'Bert': lambda: (hf.BertForMaskedLM(hf.BertConfig(**small)), tokens(length)),
        'Albert': lambda: (hf.AlbertForMaskedLM(hf.AlbertConfig(**small, embedding_size=32, hidden_dropout_prob=0.1)), tokens(length)),
        'T5': lambda: (hf.T5ForConditionalGeneration(hf.T5Config(d_model=width, d_kv=16, d_ff=96, num_layers=layers, num_heads=4, vocab_size=100,
                                                                 decoder_start_token_id=0, use_cache=False)), tokens(length)),
        'Bart': lambda: (hf.BartForConditionalGeneration(hf.BartConfig(**bart, use_cache=False)), tokens(length)),
        'ViT': lambda: (hf.ViTForImageClassification(hf.ViTConfig(**{**small, 'vocab_size': None}, image_size=64, hidden_dropout_prob=0.1, num_labels=10)),
                        pixels(64)),
        'Segformer': lambda: (hf.SegformerForImageClassification(hf.SegformerConfig(
            num_encoder_blocks=2, depths=[1, 2], sr_ratios=[4, 2], hidden_sizes=[16, 32], patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2],
            mlp_ratios=[2, 2], decoder_hidden_size=32, num_labels=10)), pixels(64)),
        'MobileViT': lambda: (hf.MobileViTForImageClassification(hf.MobileViTConfig(
            image_size=64, hidden_sizes=[24, 32, 40], neck_hidden_sizes=[8, 12, 16, 24, 24, 32, 48], num_labels=10)), pixels(64)),
        'Wav2Vec2': lambda: (hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(
            **{**small, 'vocab_size': 32}, conv_dim=[24, 24], conv_kernel=[8, 4], conv_stride=[4, 4], num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4, num_feat_extract_layers=2, layerdrop=0.0, mask_time_prob=0.0, num_labels=10)),
            Words(lambda rows, device: {'input_values': torch.randn(rows, 2000, device=device), 'labels': torch.randint(0, 10, (rows,), device=device)})),
    }


# ---- timm ----

def image(draw):
    def made(name, size=64, **options):
        return lambda: (timm.create_model(name, num_classes=10, **options), Images(size))
    some = draw.randint(1, 2)

    def blocks(lines):
        return timm.models._efficientnet_builder.decode_arch_def([[line] for line in lines])
    vit = {'img_size': 64, 'patch_size': 8, 'embed_dim': 48, 'depth': draw.randint(2, 4)}
    net, drop = timm.models, {'num_classes': 10, 'drop_path_rate': 0.2}
    return {
        'timm.ResNet': lambda: (net.ResNet(net.resnet.BasicBlock, [1, some, 1, 1], channels=(16, 24, 32, 48), drop_rate=0.1, **drop), Images(64)),
        'timm.EfficientNet': lambda: (net.EfficientNet(blocks(['ds_r1_k3_s1_e1_c16', f'ir_r{some}_k3_s2_e6_c24_se0.25', 'ir_r1_k5_s2_e6_c40']),
                                                       num_features=64, stem_size=16, drop_rate=0.1, **drop), Images(64)),
        'timm.Levit': lambda: (net.Levit(img_size=64, embed_dim=(32, 48, 64), depth=(1, some, 1), num_heads=(2, 2, 4), key_dim=8, **drop), Images(64)),
        'timm.VisionTransformer': made('vit_tiny_patch16_224', **vit, num_heads=4, drop_path_rate=0.2, proj_drop_rate=0.1),
        'timm.Beit': made('beit_base_patch16_224', **vit, num_heads=4, drop_path_rate=0.2),
        'timm.MlpMixer': lambda: (net.MlpMixer(img_size=64, patch_size=8, embed_dim=48, num_blocks=1 + some, **drop), Images(64)),
        'timm.ConvNeXt': lambda: (net.ConvNeXt(depths=(1, some, 1, 1), dims=(16, 24, 32, 48), **drop), Images(64)),
        'timm.NormFreeNet': lambda: (net.NormFreeNet(net.nfnet.NfCfg(depths=(1, some, 1, 1), channels=(16, 24, 32, 48), stem_type='3x3', stem_chs=16,
                                                                     group_size=8, num_features=64, act_layer='silu'), **drop), Images(64)),
        'timm.MetaFormer': lambda: (net.MetaFormer(depths=(1, some, 1, 1), dims=(16, 24, 32, 48), token_mixers=net.metaformer.Pooling, **drop), Images(64)),
        'timm.Xcit': made('xcit_nano_12_p16_224', img_size=64, depth=2, embed_dim=48, num_heads=4, drop_path_rate=0.1),
    }


def models(seed):
    draw = random.Random(seed)
    return {**vision(draw), **language(draw), **image(draw)}


# ---- One model ----

def optimizer_of(model, draw, is_default=False):
    """One that plans do not change, unless it is the default."""
    if is_default:
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
    if draw.random() < 0.5:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def made(name, seed, is_default=False):
    torch.manual_seed(seed)
    model, data = models(seed)[name]()
    return model.train(), data, optimizer_of(model, random.Random(f'{seed} {name}'), is_default)


def step_of(model, data, optimizer, rows, device='cpu'):
    def step():
        optimizer.zero_grad()
        loss = data.loss(model, data(rows, device))
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def begin(seed):
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(seed)


def state_of(model):
    """Copies of everything that training changes."""
    tensors = {**dict(model.named_parameters()), **{f'buffer {name}': value for name, value in model.named_buffers()},
               **{f'gradient {name}': value.grad for name, value in model.named_parameters() if value.grad is not None}}
    return {name: value.detach().clone() for name, value in tensors.items()}, (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist())


def structure(model):
    """What undo() must restore: classes, attributes, and numbers of hooks."""
    hooks = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')
    return [(name, type(module), sorted(vars(module)), vars(module).get('forward'), [len(getattr(module, each) or ()) for each in hooks],
             {key: value for key, value in vars(module).items() if isinstance(value, (int, float, str, tuple, type(None)))})
            for name, module in model.named_modules()], \
        [(name, len(parameter._backward_hooks or ()), len(getattr(parameter, '_post_accumulate_grad_hooks', None) or ()))
         for name, parameter in model.named_parameters()], getattr(getattr(model, 'config', None), 'use_cache', None)


def same(first, second, what):
    assert first[0].keys() == second[0].keys(), what
    other = [name for name in first[0] if not torch.equal(first[0][name], second[0][name])]
    assert not other, f'{what}: {len(other)} of {len(first[0])} tensors differ, the first is {other[0]}'
    assert first[1] == second[1], f'{what}: other random numbers'


def near(first, second, what):
    weights = [name for name in first[0] if not name.startswith(('gradient', 'buffer'))]
    largest = max(first[0][name].abs().max() for name in weights)
    worst = max((first[0][name] - second[0][name]).abs().max() for name in weights) / largest
    assert worst <= BOUND, f'{what}: weights differ by {worst}'


def trained(step, count):
    losses = [step() for _ in range(count)]
    assert all(torch.isfinite(loss) for loss in losses), losses
    return [loss.item() for loss in losses]


def checkpointed(graph):
    """A plan that checkpoints all outermost modules that can run twice."""
    calls = [graph['texts'][name] for name, *_ in graph['modules']]
    once = {calls[call] for call, _, why in graph.get('effects', ()) if why >= 0}
    most = max(end for _, _, _, end, *_ in graph['modules'])
    chosen = [name for name, (_, _, begin, end, *_) in zip(calls, graph['modules']) if name and name not in once and end - begin < 0.7 * most]
    return {'checkpoint': tessera._apply._outer(list(dict.fromkeys(chosen))), 'version': 1}


def budgets_of(model, data, optimizer):
    """What the step takes, two budgets below: halfway to the leanest plan, and close to it; and a plan with as many checkpoints as possible."""
    step = step_of(model, data, optimizer, data.most, 'cuda')
    with _fit._unchanged(model, optimizer, step):
        graph = tessera.trace(step, model=model, optimizer=optimizer, value=1.0)
    taken = _fit._predicted(graph).reserved_bytes
    least = _fit._planned(graph, 1 << 20, 'a100').after.reserved_bytes
    return taken, (least + (taken - least) // 2, least + (taken - least) // 5), checkpointed(graph)


def one(name, seed, is_default=False, show=None):
    rows = 2
    first, data, its = made(name, seed, is_default)
    begin(seed)
    step = step_of(first, data, its, rows)
    known = [(trained(step, count), state_of(first)) for count in (STEPS, MORE, MORE, MORE)]

    model, data, optimizer = made(name, seed, is_default)
    as_it_was = structure(model)
    fresh = state_of(model)
    begin(seed)
    taken, budgets, plan = budgets_of(model, data, optimizer)
    assert budgets[0] < taken, f'{name}: nothing takes less than {taken}'
    step = step_of(model, data, optimizer, rows)
    compare = near if is_default else same
    for budget, (losses, state) in zip((budgets[0], None, budgets[1], plan), known):
        if budget is plan:
            applied = tessera.apply(model, plan)
        else:
            applied = budget and tessera.fit(model, optimizer, step_of(model, data, optimizer, data.most, 'cuda'), budget, value=1.0)
        if applied and budget is not plan:
            assert applied.changes and applied.after.reserved_bytes <= budget < applied.before.reserved_bytes, applied
            if show is not None:
                show.setdefault(name, applied)
        if budget == budgets[0]:
            same((fresh[0], None), (state_of(model)[0], None), f'{name}: fit() itself')
        what = f'{name}, {applied or "after undo()"}'
        found = trained(step, len(losses))
        if is_default:
            assert all(abs(a - b) <= BOUND * max(abs(a), 1) for a, b in zip(losses, found)), f'{what}: {found} instead of {losses}'
        else:
            assert found == losses, f'{what}: other losses: {found} instead of {losses}'
        compare(state, state_of(model), what)
        if applied:
            applied.undo()
            assert structure(model) == as_it_was, f'{name}: undo() leaves something'


FUSED = ('ResNet', 'Llama', 'timm.VisionTransformer')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--check', action='store_true', help='as for the other programs; there is nothing else')
    parser.add_argument('--seed', type=int, default=1, help='of the sizes and the numbers')
    parser.add_argument('--left', action='store_true', help='print what fit() left out of each model')
    parser.add_argument('names', nargs='*', metavar='NAME')
    given = parser.parse_args()
    hf.logging.set_verbosity_error()
    torch.set_num_threads(1)
    gc.freeze()  # traces collect garbage often
    tests = {**{name: (name, False) for name in models(given.seed)}, **{f'fused-{name}': (name, True) for name in FUSED}}
    failed, show = 0, {}
    for name in given.names or tests:
        try:
            one(tests[name][0], given.seed, tests[name][1], show if not tests[name][1] else None)
            print(f'ok - {name}', flush=True)
        except Exception:  # the next one may say more
            failed += 1
            traceback.print_exc()
            print(f'not ok - {name}', flush=True)
        gc.collect()
    for name, applied in show.items() if given.left else ():
        print(f'## {name}\n{applied}')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
