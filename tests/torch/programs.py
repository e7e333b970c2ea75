"""Programs whose step graphs are in tests/golden/graphs: small models of many kinds, and how each is trained."""
import math

import bitsandbytes
import peft
import torch
import transformers as hf
from torch import nn
from torch.nn.functional import cross_entropy, interpolate, mse_loss, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from tessera._trace_model import parts

from configs import CLASSES, CONFIGS, batch_of

SMALL = {'hidden_size': 64, 'num_attention_heads': 4, 'intermediate_size': 128, 'num_hidden_layers': 2, 'vocab_size': 500}


# ---- Language models as people write them themselves ----

class Block(nn.Module):
    """A transformer block as people write it themselves."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                       nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        batch, rows, width = x.shape
        q, k, v = (part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).split(width, dim=2))
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, rows, width))
        return x + self.mlp(self.norm_2(x))


class Plain(nn.Module):
    """A language model with tied embeddings, in one file."""

    def __init__(self, vocabulary=500, width=64, heads=4, layers=2, rows=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(rows, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Layer(nn.Module):
    """PyTorch's own attention, with its weights. `form` selects what backward recomputes: nothing, the 'attention', the two
    'halves' of the layer separately, or the 'layer'."""

    def __init__(self, width, heads, form, dropout):
        super().__init__()
        self.form = form
        self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width))
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def attend(self, x):
        return self.attention(x, x, x)[0]

    def forward(self, x):
        def call(function, is_again):
            return checkpoint(function, x, use_reentrant=False) if is_again else function(x)
        x = self.norm_1(x + call(self.attend, self.form in ('attention', 'halves')))
        return self.norm_2(x + call(self.mlp, self.form == 'halves'))


class Layers(nn.Module):
    """A language model of such layers."""

    def __init__(self, form, dropout=0.0, layers=3, width=64, vocabulary=500):
        super().__init__()
        self.form = form
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.layers = nn.ModuleList(Layer(width, 4, form, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device)[None])
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.form == 'layer' else layer(x)
        return self.head(self.norm(x))


class Adapted(nn.Module):
    """A linear layer that is not trained, plus the product of two small ones (LoRA)."""

    def __init__(self, base, rank=4, alpha=8, dropout=0.05):
        super().__init__()
        self.base, self.dropout, self.scale = base, nn.Dropout(dropout), alpha / rank
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(self.dropout(x))) * self.scale


def adapted_llama():
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2))
    model.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.self_attn.v_proj = Adapted(layer.self_attn.q_proj), Adapted(layer.self_attn.v_proj)
    return model


def by_peft(model, **how):
    """The same by peft: adapters of fp32 in a model of 16 bits."""
    return peft.get_peft_model(model, peft.LoraConfig(**{'r': 8, 'lora_dropout': 0.1, 'target_modules': 'all-linear', 'task_type': 'CAUSAL_LM', **how}))


def half_llama():
    return hf.LlamaForCausalLM._from_config(hf.LlamaConfig(**SMALL, num_key_value_heads=2), dtype=torch.bfloat16)


def quantised_llama(**how):
    """QLoRA: the weights of linear layers in 4 bits, as transformers loads them with bitsandbytes, prepared and adapted by peft."""
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    config = hf.LlamaConfig(**{**SMALL, 'hidden_size': 256, 'intermediate_size': 512, 'vocab_size': 2000}, num_key_value_heads=2)
    model = hf.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    quantisation = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', bnb_4bit_use_double_quant=True,
                                         bnb_4bit_compute_dtype=torch.bfloat16)
    model = replace_with_bnb_linear(model, modules_to_not_convert=['lm_head'], quantization_config=quantisation)
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            weight = torch.randn(module.out_features, module.in_features, dtype=torch.bfloat16)
            module.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, quant_type='nf4', compress_statistics=True, module=module)
    model = model.to(how.pop('device', 'cpu'))  # which quantises
    model.is_loaded_in_4bit = True
    model = peft.prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={'use_reentrant': False})
    return by_peft(model, **how)


def mixtral():
    """Routing is given: token i goes to experts i and i + 1. Which tokens an expert gets would depend on values."""
    model = hf.MixtralForCausalLM(hf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4))

    def route(self, states):
        flat = states.reshape(-1, states.shape[-1])
        logits = self.gate(flat)
        weights = torch.topk(torch.softmax(logits, dim=1, dtype=torch.float), self.top_k, dim=-1)[0]
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(states.dtype)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            for place in range(self.top_k):
                rows = torch.arange((number - place) % self.num_experts, len(flat), self.num_experts, device=flat.device)
                out.index_add_(0, rows, expert(flat[rows]) * weights[rows, place, None])
        return out.reshape(states.shape), logits

    for layer in model.model.layers:
        layer.block_sparse_moe.forward = route.__get__(layer.block_sparse_moe)
    return model


# ---- A diffusion model ----

class Residual(nn.Module):
    def __init__(self, inputs, outputs, times):
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(8, inputs), nn.GroupNorm(8, outputs)
        self.conv_1, self.conv_2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time, self.act = nn.Linear(times, outputs), nn.SiLU()
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        y = self.conv_1(self.act(self.norm_1(x))) + self.time(self.act(time))[:, :, None, None]
        return self.skip(x) + self.conv_2(self.act(self.norm_2(y)))


class Attention(nn.Module):
    """Of the places of an image."""

    def __init__(self, width, heads=4):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, width, rows, columns = x.shape
        flat = self.norm(x).view(batch, width, rows * columns).transpose(1, 2)
        q, k, v = (part.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(flat).chunk(3, dim=-1))
        y = self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width))
        return x + y.transpose(1, 2).view(x.shape)


class UNet(nn.Module):
    """Predicts the noise in an image, from the image and a time."""

    def __init__(self, widths=(32, 64), channels=3):
        super().__init__()
        times = 4 * widths[0]
        self.frequencies = widths[0] // 2
        self.time = nn.Sequential(nn.Linear(widths[0], times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(channels, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            nn.ModuleList([Residual(before, width, times), Attention(width), nn.Conv2d(width, width, 3, stride=2, padding=1)])
            for before, width in zip((widths[0], *widths), widths))
        self.middle = nn.ModuleList([Residual(widths[-1], widths[-1], times), Attention(widths[-1]),
                                     Residual(widths[-1], widths[-1], times)])
        self.up = nn.ModuleList(
            nn.ModuleList([nn.Conv2d(before, width, 3, padding=1), Residual(2 * width, width, times), Attention(width)])
            for before, width in zip((widths[-1], *widths[::-1]), widths[::-1]))
        self.norm, self.last = nn.GroupNorm(8, widths[0]), nn.Conv2d(widths[0], channels, 3, padding=1)

    def forward(self, x, times):
        angles = times[:, None] * torch.exp(torch.arange(self.frequencies, device=x.device)
                                            * (-math.log(10000) / self.frequencies))
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        x, skips = self.first(x), []
        for residual, attention, half in self.down:
            x = attention(residual(x, time))
            skips.append(x)
            x = half(x)
        residual, attention, last = self.middle
        x = last(attention(residual(x, time)), time)
        for double, residual, attention in self.up:
            x = double(interpolate(x, scale_factor=2.0, mode='nearest'))
            x = attention(residual(torch.cat([x, skips.pop()], dim=1), time))
        return self.last(nn.functional.silu(self.norm(x)))


# ---- Steps ----

def ids(batch=2, rows=64):
    return torch.zeros(batch, rows, dtype=torch.long, device='cuda')


def text(**more):
    return {'input_ids': ids(), 'labels': ids(), **more}


def masked():
    return text(attention_mask=torch.ones(2, 64, dtype=torch.long, device='cuda'))


def image():
    return {'pixel_values': torch.zeros(2, 3, 64, 64, device='cuda'), 'labels': torch.zeros(2, dtype=torch.long, device='cuda')}


def plain_step(model, optimizer):
    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = model(ids(), ids())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step


def hf_step(batch):
    def of(model, optimizer):
        def step():
            optimizer.zero_grad()
            model(**batch()).loss.backward()
            optimizer.step()
        return step
    return of


def quantised_step(model, optimizer):
    step = hf_step(lambda: {'input_ids': ids(4, 512), 'labels': ids(4, 512)})(model, optimizer)
    step.kept = lambda: [part for param in model.parameters() for _, _, part in parts(param)]
    return step


def scaled_step(model, optimizer):
    """fp16, with gradients unscaled and clipped."""
    scaler = None

    def step():
        nonlocal scaler
        scaler = scaler or torch.amp.GradScaler('cuda')
        optimizer.zero_grad()
        with torch.autocast('cuda', dtype=torch.float16):
            logits = model(ids())
            loss = cross_entropy(logits.view(-1, logits.shape[-1]), ids().view(-1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    step.kept = lambda: [scaler._scale, scaler._growth_tracker]
    return step


def layers_step(model, optimizer):
    def step():
        logits = model(ids())
        loss = cross_entropy(logits.view(-1, logits.shape[-1]), ids().view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return step


def noise_step(model, optimizer):
    def step():
        images = torch.zeros(2, 3, 32, 32, device='cuda')
        noise, times = torch.randn_like(images), torch.randint(0, 1000, (2,), device='cuda')
        share = torch.linspace(1, 0, 1000, device='cuda')[times][:, None, None, None]
        optimizer.zero_grad()
        with torch.autocast('cuda', dtype=torch.bfloat16):
            loss = mse_loss(model(images * share.sqrt() + noise * (1 - share).sqrt(), times), noise)
        loss.backward()
        optimizer.step()
    return step


class Contrastive(nn.Module):
    """PyTorch's own encoder layers, whose attention no mode of Python sees; a bag of embeddings, and losses whose ops are made of others."""

    def __init__(self):
        super().__init__()
        self.texts = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2, enable_nested_tensor=False)
        self.words, self.tags, self.match = nn.Embedding(500, 64), nn.EmbeddingBag(500, 64, mode='mean'), nn.Linear(64, 1)

    def forward(self, texts, tags):
        padding = torch.zeros(texts.shape, dtype=torch.bool, device=texts.device)
        left = nn.functional.normalize(self.texts(self.words(texts), src_key_padding_mask=padding).mean(1), dim=-1)
        right = nn.functional.normalize(self.tags(tags), dim=-1)
        scores = left @ right.t() / 0.07
        same = torch.eye(len(texts), device=texts.device)
        matched = nn.functional.binary_cross_entropy_with_logits(self.match(left * right).expand_as(scores), same)
        return (torch.logsumexp(scores, 1) - scores.diagonal()).mean() + matched


def pairs_step(model, optimizer):
    def step():
        optimizer.zero_grad()
        model(torch.zeros(96, 32, dtype=torch.long, device='cuda'), torch.zeros(96, 8, dtype=torch.long, device='cuda')).backward()
        optimizer.step()
    return step


def trained(model):
    return [param for param in model.parameters() if param.requires_grad]


def fused(model):
    return torch.optim.AdamW(model.parameters(), fused=True)


def adamw8bit(model):
    return bitsandbytes.optim.AdamW8bit(trained(model))


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adamw(model):
    return torch.optim.AdamW(trained(model))


FEW = {**SMALL, 'num_key_value_heads': 2}
# Mixtures of experts: the model, how many experts each token goes to and of how many, and the number of routers.
ROUTED = {
    'mixtral': (lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**FEW, num_local_experts=4)), 2, 4, 2),
    'qwen3-moe': (lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **FEW, head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=48)), 2, 6, 2),
    'deepseek-v3': (lambda: hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(
        **{**SMALL, 'num_key_value_heads': 4}, moe_intermediate_size=32, n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=3,
        q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, first_k_dense_replace=1)), 3, 8, 1),
    'gpt-oss': (lambda: hf.GptOssForCausalLM(hf.GptOssConfig(
        **FEW, head_dim=16, num_local_experts=5, num_experts_per_tok=2, pad_token_id=0)), 2, 5, 2),
}

# Name: the model, what makes its optimizer, and its step.
PROGRAMS = {
    'plain-autocast': (Plain, fused, plain_step),
    'bert': (lambda: hf.BertForMaskedLM(hf.BertConfig(**SMALL)), adamw, hf_step(masked)),
    't5': (lambda: hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500, decoder_start_token_id=0)),
        adamw, hf_step(text)),
    'vit': (lambda: hf.ViTForImageClassification(hf.ViTConfig(**{**SMALL, 'vocab_size': None}, image_size=64)),
            momentum, hf_step(image)),
    'resnet-50': (lambda: hf.ResNetForImageClassification(hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64, 128, 256])), momentum, hf_step(image)),
    'unet': (UNet, adamw, noise_step),
    'llama': (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL, num_key_value_heads=2)), adamw, hf_step(text)),
    'llama-lora': (adapted_llama, adamw, hf_step(text)),
    'llama-peft': (lambda: by_peft(half_llama()), adamw, hf_step(text)),
    'llama-qlora': (quantised_llama, adamw8bit, quantised_step),
    'mixtral': (mixtral, adamw, hf_step(text)),
    'gpt-neox': (lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SMALL)), adamw, hf_step(text)),
    'layers': (lambda: Layers('none'), adamw, layers_step),
    'layers-checkpoint': (lambda: Layers('layer'), adamw, layers_step),
    'layers-selective': (lambda: Layers('attention'), adamw, layers_step),
    'halves-scaled': (lambda: Layers('halves', dropout=0.1), adamw, scaled_step),
    'contrastive': (Contrastive, adamw, pairs_step),
}
# Models of transformers that tessera traces by their configs (configs.py).
TRACED = ('qwen3', 'gemma2', 'gemma3_text', 'phi3', 'deepseek_v3', 'llama4_text', 'gpt_oss', 'falcon', 'bloom', 'whisper')


def of_config(name):
    """As PROGRAMS has it. Attention and routing are transformers' own."""
    def make():
        return CLASSES[name]._from_config(hf.AutoConfig.for_model(name, **CONFIGS[name]), dtype=torch.float32)

    def step_of(model, optimizer):
        return hf_step(lambda: batch_of(name, model, {}, 64))(model, optimizer)
    return make, adamw, step_of


PROGRAMS.update({name.replace('_', '-'): of_config(name) for name in TRACED})
# Mixtures of experts, with the routing that their names end with.
ROUTINGS = {f'{name}-{routing}': routing for name in ('mixtral', 'qwen3-moe', 'deepseek-v3') for routing in ('balanced', 'worst')}
PROGRAMS.update({name: (ROUTED[name.rpartition('-')[0]][0], adamw, hf_step(text)) for name in ROUTINGS})
# The value of numbers that a step reads from a tensor: masks are all ones.
VALUE = 1.0


def routing_of(name):
    return ROUTINGS.get(name, 'balanced')
