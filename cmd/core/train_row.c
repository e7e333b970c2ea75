/* train_row.c - the options of `tessera train`, and its help. */
#include <tessera/unstable/runs.h>
#include <tessera/unstable/train_report.h>

#include "session.h"

static const tsr_parameter train_parameters[] = {
    {.name = "model",
     .is_operand = true,
     .kind = TSR_PARAMETER_OBJECT,
     .type = &tsr_model_type,
     .argument = "MODEL",
     .help = "A model's name, its config.json, or its folder."},
    {.name = "data",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "The training data: a text, whose bytes are the tokens, or a file of tokens. '-' is "
             "standard input, for texts up to 64 MiB.",
     .is_resumed = true},
    {.name = "tokens",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "TYPE",
     .help = "The token type of FILE: bytes, u16 or u32 (little-endian numbers), or auto "
             "(default): the type that llm.c's header specifies if there is one, else u16 if the "
             "name ends in .bin, else bytes.",
     .choices = (const char *const[]){"auto", "bytes", "u16", "u32", NULL},
     .is_resumed = true},
    {.name = "val",
     .kind = TSR_PARAMETER_PATH,
     .argument = "FILE",
     .help = "Validation data, in the form of --data: the mean loss over fixed batches of it is "
             "printed after some steps and after the last. That changes nothing else about the "
             "run.",
     .is_resumed = true},
    {.name = "eval_every",
     .option = "eval-every",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "With --val, evaluate after every N steps (default: 100).",
     .least = 1,
     .is_resumed = true},
    {.name = "eval_steps",
     .option = "eval-steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The number of batches of an evaluation (default: 20). They are the same each time, "
             "and spread evenly over FILE.",
     .least = 1,
     .is_resumed = true},
    {.name = "eval_batch",
     .option = "eval-batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch of an evaluation (default: as many as in a forward of training).",
     .least = 1,
     .is_resumed = true},
    {.name = "tokenizer",
     .kind = TSR_PARAMETER_PATH,
     .argument = "PATH",
     .help =
         "The tokenizer.json, or a folder that has one, which turns a text into tokens (default: "
         "that of the folder of MODEL, or of --resume). With --tokens it is not used."},
    {.name = "save",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "DIR",
     .help =
         "Save the model to the folder DIR at the end and at Ctrl-C, in a form that "
         "transformers loads, with what --resume needs. With --val the best weights, those with "
         "the smallest validation loss, are saved in the same form to DIR/best. Default with "
         "--resume: the folder of the resumed run."},
    {.name = "save_every",
     .option = "save-every",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "N",
     .example = "10min",
     .help = "Also save after every N steps, or after a time: 90s, 10min or 2h."},
    {.name = "sample",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "TEXT",
     .help =
         "After each save, continue TEXT with the weights that were saved. While that lasts, the "
         "weights are in memory once more, in fp32, which --budget does not count.",
     .is_resumed = true},
    {.name = "sample_tokens",
     .option = "sample-tokens",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Tokens that --sample adds (default: 60).",
     .fallback = 60,
     .least = 1,
     .is_resumed = true},
    {.name = "save_wait",
     .option = "save-wait",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "SECONDS",
     .help =
         "How long a save at the end of the run is tried again if it fails, because the disk is "
         "full for example (default: 600). A save during the run is tried again after later "
         "steps."},
    {.name = "log",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .example = "run.csv",
     .help = "Write a row for each step to FILE (.csv or .jsonl): step, loss, validation loss, "
             "learning rate, gradient norm, tokens per second, seconds and peak. With --resume, "
             "rows are added to those of the steps before."},
    {.name = "resume",
     .kind = TSR_PARAMETER_PATH,
     .argument = "DIR",
     .help = "Resume the run that was saved in DIR. Options that are given again override the "
             "saved ones. The result is bit for bit the same as without the interruption. Data "
             "that has changed is refused, unless --data names it again."},
    {.name = "steps",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Optimizer steps in total, including those before --resume (default: 100).",
     .fallback = 100,
     .least = 1,
     .is_resumed = true},
    {.name = "batch",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Sequences per batch (default: 4).",
     .fallback = 4,
     .least = 1,
     .is_resumed = true},
    {.name = "seq",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Tokens per sequence (default: 64).",
     .fallback = 64,
     .least = 2,
     .is_resumed = true},
    {.name = "lr",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "RATE",
     .help = "The learning rate (default: 0.001).",
     .is_resumed = true},
    {.name = "schedule",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORM",
     .help = "constant (default); cosine or linear: the rate falls to --min-lr by the last step.",
     .choices = (const char *const[]){"constant", "cosine", "linear", NULL},
     .is_resumed = true},
    {.name = "min_lr",
     .option = "min-lr",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "RATE",
     .help = "The rate to which --schedule falls (default: 0).",
     .is_resumed = true},
    {.name = "warmup",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "Steps in which the rate grows to --lr (default: 0).",
     .is_resumed = true},
    {.name = "weight_decay",
     .option = "weight-decay",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "NUMBER",
     .help = "AdamW's weight decay (default: 0.01).",
     .is_resumed = true},
    {.name = "no_decay",
     .option = "no-decay",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "LIST",
     .example = "norms,biases",
     .help = "Parameters that AdamW does not decay: norms, biases, or both, as is usual for GPT-2; "
             "none (default) decays all, as torch.optim.AdamW does.",
     .is_resumed = true},
    {.name = "momentum",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "NUMBER",
     .help = "SGD's momentum, which needs a tensor for each parameter (default: 0; 0.9 with "
             "--optimizer sgd-momentum).",
     .is_resumed = true},
    {.name = "nesterov",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Use Nesterov's form of momentum.",
     .is_resumed = true},
    {.name = "betas",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "B1,B2",
     .example = "0.9,0.95",
     .help = "AdamW's betas (default: 0.9,0.999).",
     .is_resumed = true},
    {.name = "eps",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "NUMBER",
     .help = "AdamW's epsilon (default: 1e-8).",
     .is_resumed = true},
    {.name = "order",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "ORDER",
     .help = "Where in the data sequences are taken from: random positions (random, default), or "
             "one after the other (sequential), each beginning with the last token of the previous "
             "one. A batch that would go beyond the end starts again at the beginning.",
     .choices = (const char *const[]){"random", "sequential", NULL},
     .is_resumed = true},
    {.name = "seed",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The random seed for weights, batches and dropout (default: 0). The same seed gives "
             "the same run.",
     .is_resumed = true},
    TSR_RUN_BOOK("own"),
    {.rows = tsr_run_parameters},
    {.name = "threads",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The number of threads (default: one per processor). Results do not depend on it."},
    {.name = "isa",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "SET",
     .help = "The largest instruction set that kernels may use: plain, avx2, avx512 or avx512-bf16 "
             "(default: all that the processor has). The last digits of results depend on it.",
     .choices = tsr_train_isa_words,
     .is_resumed = true},
    {.name = "products",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "BY",
     .help = "What multiplies matrices: tessera's own kernels (own), onednn, which must be "
             "installed, or auto (default): own, unless oneDNN is clearly faster, which a long run "
             "measures first. The last digits of results depend on it; a saved run keeps the "
             "choice.",
     .choices = tsr_train_products_words,
     .is_resumed = true},
    {.name = "memory",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "MODE",
     .help = "caching (default): tensors are where PyTorch's allocator would put them; placed: at "
             "addresses planned before the run, which takes less memory. Results do not depend on "
             "it.",
     .choices = (const char *const[]){"caching", "placed", NULL},
     .is_resumed = true},
    {.name = "capacity",
     .option = "budget",
     .kind = TSR_PARAMETER_BYTES,
     .argument = "SIZE",
     .example = "4GiB",
     .help = "Memory that the run may use, such as 4GiB (default: unlimited). A run that needs "
             "more gets the fastest plan that fits, or is refused if none does. With --plan, "
             "--ranks, --resume or --allow none, no plan is searched: the run ends where it was "
             "predicted to run out of memory, and prints what the memory was used for.",
     .is_resumed = true},
    {.name = "allow",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "LIST",
     .example = "recompute,offload",
     .help = "With --budget, what may be changed (default: what leaves results unchanged, without "
             "offload): %s; or all, or none.",
     .word = tsr_allow_word},
    {.rows = tsr_run_limits},
    {.name = "offload_dir",
     .option = "offload-dir",
     .kind = TSR_PARAMETER_PATH,
     .argument = "DIR",
     .help = "The folder for the temporary file of --offload activations:disk, which is deleted "
             "after the run. Default with --resume: the folder that the run is saved to.",
     .is_resumed = true},
    {.name = "by",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHAT",
     .help = "op: at the end, list the time of each op, its operations and the bytes it moves.",
     .choices = (const char *const[]){"op", NULL}},
    {.name = "write_rates",
     .option = "write-rates",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "Write the measured times of kernels and copies to FILE, from which simulate and plan "
             "predict times with --rates."},
    {.name = "snapshot",
     .kind = TSR_PARAMETER_PATH,
     .is_written = true,
     .argument = "FILE",
     .help = "Write the run's memory to FILE, a snapshot (.pickle or .json) as PyTorch writes "
             "them."},
};

const cli_command cli_train_row = {
    .about =
        {.name = "train",
         .summary = "run the training that simulate predicts, on the CPU",
         .situation = TSR_SITUATION_TRAINING,
         .main_options =
             "data val steps batch seq lr lora dtype checkpoint budget memory save resume "
             "plan ranks zero",
         .description =
             "Trains a model on a text, in C and without a GPU. Each step allocates exactly what "
             "simulate predicts for it, and prints the loss, the speed and the memory in use.\n\n"
             "MODEL is the config.json of a GPT-2, Llama, Mistral or Qwen2 model, or one of the "
             "names that 'tessera help simulate' lists; its weights are initialised at random. It "
             "can also be a folder with a config.json and weights in safetensors files, as "
             "transformers saves them, or a checkpoint of llm.c, such as gpt2_124M.bin; training "
             "then starts from those weights. With --resume, MODEL can be left out.\n\n"
             "Ctrl-C ends the run after the current step, and a second one within it; with --save, "
             "the run is saved. If a loss "
             "or gradient is not finite, the run ends with exit status 1, and --save writes the "
             "state before that step. The exit status is also 1 if the run runs out of memory.",
         .parameters = train_parameters,
         .parameter_count = sizeof train_parameters / sizeof *train_parameters,
         .examples = {{"tessera train config.json --data book.txt --steps 500 --save run",
                       "learn to predict a book's next byte"},
                      {"tessera train --resume run", "resume it after Ctrl-C"},
                      {"tessera train gpt2 --data book.txt --steps 3 --snapshot run.pickle",
                       "three steps, and a snapshot of their memory"}}},
    .operands = "[MODEL]",
    .operand_min = 0,
    .operand_max = 1,
    .answers = true,
    .lacks = "output color",
    .confines = true,
    .run = cli_train,
};
