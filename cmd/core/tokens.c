/* tokens.c - `tessera tokens --tokenizer FOLDER TEXT... -o FILE`: texts as a file of tokens, which train reads.
 *
 * The file begins with llm.c's header, so that a reader knows the type of the numbers, or has the numbers alone, as nanoGPT writes
 * them. The header has the number of tokens, which is known in the end: it is written over what was left free for it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/unstable/json.h>
#include <tessera/unstable/tokenizer.h>

#include "encode.h"
#include "message.h"
#include "progress.h"
#include "session.h"
#include "textfile.h"

static const tsr_parameter tokens_parameters[] = {
    {.name = "texts",
     .is_operand = true,
     .kind = TSR_PARAMETER_TEXTS,
     .argument = "TEXT",
     .help = "Files of text in UTF-8, of any size; '-' is standard input."},
    {.name = "tokenizer",
     .kind = TSR_PARAMETER_PATH,
     .argument = "PATH",
     .help = "The tokenizer.json, or the folder of a model that has one."},
    {.name = "header",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "FORM",
     .help =
         "llmc (default): begin the file with llm.c's header, from which readers know the type; "
         "none: numbers alone, as nanoGPT reads them.",
     .choices = (const char *const[]){"llmc", "none", NULL}},
    {.name = "type",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "TYPE",
     .help = "The type of a token in the file: u16, u32, or auto (default): u16 if the "
             "vocabulary fits.",
     .choices = (const char *const[]){"auto", "u16", "u32", NULL}},
    {.name = "end",
     .kind = TSR_PARAMETER_CHOICE,
     .argument = "WHERE",
     .help = "Put the end-of-text token before each text, as llm.c's scripts do, after each, as "
             "nanoGPT's do, or nowhere (none, default).",
     .choices = (const char *const[]){"none", "before", "after", NULL}},
    {.name = "end_token",
     .option = "end-token",
     .kind = TSR_PARAMETER_TEXT,
     .argument = "TOKEN",
     .help =
         "That token, as the tokenizer spells it (default: what the files next to the tokenizer "
         "state, else <|endoftext|>, <|end_of_text|>, </s> or <eos>)."},
    {.name = "special",
     .kind = TSR_PARAMETER_FLAG,
     .help = "Add to each text what the tokenizer's post-processor adds, such as Llama's <s>."},
    {.name = "threads",
     .kind = TSR_PARAMETER_COUNT,
     .argument = "N",
     .help = "The number of threads (default: one per processor). The tokens do not depend on it."},
};

const cli_command cli_tokens_row = {
    .about =
        {.name = "tokens",
         .summary = "turn texts into a file of tokens for train",
         .situation = TSR_SITUATION_TRAINING,
         .description =
             "Encodes texts with a model's tokenizer.json, exactly as the package tokenizers does, "
             "and writes a file of tokens, which 'train --data' reads. BPE tokenizers are "
             "supported: those of GPT-2, Llama, Mistral, Qwen, Gemma and others; a tokenizer with "
             "anything else is refused with a message that names it.\n\n"
             "Special tokens that are spelled out in a text, such as <|endoftext|>, are encoded as "
             "such. All of a text is read into memory.",
         .parameters = tokens_parameters,
         .parameter_count = sizeof tokens_parameters / sizeof *tokens_parameters,
         .examples =
             {{"tessera tokens --tokenizer gpt2 book.txt -o book.bin",
               "a book, for 'tessera train gpt2 --data book.bin'"},
              {"tessera tokens --tokenizer gpt2 --end after --header none *.txt -o train.bin",
               "as nanoGPT's prepare.py"}}},
    .operands = "TEXT...",
    .operand_min = 1,
    .operand_max = SIZE_MAX,
    .answers = true,
    .writes_aside = true,
    .lacks = "color verbose",
    .run = cli_tokens,
};

enum { HEADER_BYTES = 1024, PIECE = 4096 };

typedef struct writer {
  cli_session *session;
  tsr_tokenizer *tokenizer;
  cli_output output;
  bool is_wide, has_header;
  int64_t end; /* the end-of-text token; -1 if none is written */
  bool is_end_before;
  uint64_t token_count, text_bytes;
} writer;

/* A tsr_tokens_fn: little-endian numbers. */
static int write_tokens(void *context, const uint32_t *ids, size_t count) {
  writer *w = context;
  unsigned char bytes[4 * PIECE];
  size_t each = w->is_wide ? 4 : 2;
  w->token_count += count;
  for (size_t first = 0; first < count; first += PIECE) {
    size_t here = count - first < PIECE ? count - first : PIECE;
    for (size_t i = 0; i < here * each; i++)
      bytes[i] = (unsigned char)(ids[first + i / each] >> 8 * (i % each));
    if (cli_output_write(&w->output, (const char *)bytes, here * each)) return -1;
  }
  return 0;
}

/* ---- options ---- */

static int find_end(writer *w, const char *path) {
  const cli_options *options = w->session->options;
  const char *name = tsr_params_text(options->own, "end_token");
  int where = tsr_params_choice(options->own, "end");
  uint32_t id;
  size_t count;
  w->end = -1;
  if (where <= 0)
    return name ? cli_usage_error(options->command, "--end-token needs --end before or after") : 0;
  w->is_end_before = where == 1;
  if (name) {
    w->end = tsr_tokenizer_id(w->tokenizer, name);
    return w->end < 0 ? cli_usage_error(options->command, "'%s' is not a token of %s", name, path)
                      : 0;
  }
  int status = tsr_tokenizer_ends(w->tokenizer, path, &id, 1, &count, &w->session->error);
  if (status) return status;
  if (count && id < tsr_tokenizer_vocabulary(w->tokenizer)) {
    w->end = id;
    return 0;
  }
  return cli_usage_error(options->command, "%s has no end-of-text token; name it with --end-token",
                         path);
}

static int read_type(writer *w) {
  const cli_options *options = w->session->options;
  uint32_t vocabulary = tsr_tokenizer_vocabulary(w->tokenizer);
  int type = tsr_params_choice(options->own, "type");
  w->has_header = tsr_params_choice(options->own, "header") <= 0;
  w->is_wide = type == 2 || (type <= 0 && vocabulary > 65536);
  if (w->is_wide || vocabulary <= 65536) return 0;
  return cli_usage_error(
      options->command, "a vocabulary of %" PRIu32 " tokens does not fit into 16 bits", vocabulary);
}

/* ---- texts ---- */

static int encode_text(writer *w, const char *path) {
  cli_session *session = w->session;
  const tsr_params *own = session->options->own;
  uint64_t threads = tsr_params_count(own, "threads");
  uint32_t end = (uint32_t)w->end;
  char *text = NULL;
  size_t size = 0;
  session->path = path;
  int status = cli_read_large_text(path, &text, &size, &session->error);
  if (status) return status;
  cli_progress progress = cli_progress_start("encoding", path, session->options->quiet);
  tsr_encode_options how = {.struct_bytes = sizeof how,
                            .adds_special = tsr_params_flag(own, "special"),
                            .threads = threads > 1024 ? 1024 : (unsigned)threads,
                            .progress = cli_progress_update,
                            .progress_context = &progress};
  if (w->end >= 0 && w->is_end_before && write_tokens(w, &end, 1)) status = TSR_ERROR_WRITE;
  if (status == 0)
    status = tsr_tokenizer_encode(w->tokenizer, text, size, &how, write_tokens, w, &session->error);
  if (status == 0 && w->end >= 0 && !w->is_end_before && write_tokens(w, &end, 1))
    status = TSR_ERROR_WRITE;
  cli_progress_end(&progress);
  free(text);
  w->text_bytes += size;
  return status;
}

/* Rule: llm.c, dev/data/data_common.py: a magic number, a version, the number of tokens, and zeros. */
static int write_header(writer *w) {
  unsigned char header[HEADER_BYTES] = {0};
  const uint64_t numbers[] = {w->is_wide ? 20240801 : 20240520, w->is_wide ? 7 : 1, w->token_count};
  if (!w->has_header) return 0;
  if (w->token_count > UINT32_MAX) {
    cli_say("tokens",
            "llm.c's header has room for 4,294,967,295 tokens, and there are %" PRIu64
            "; use --header none, or several files",
            w->token_count);
    return CLI_INPUT;
  }
  for (size_t i = 0; i < 12; i++) header[i] = (unsigned char)(numbers[i / 4] >> 8 * (i % 4));
  FILE *stream = cli_output_stream(&w->output);
  if (stream && fseek(stream, 0, SEEK_SET) == 0 && fwrite(header, sizeof header, 1, stream) == 1)
    return 0;
  w->output.error_number = errno;
  return TSR_ERROR_WRITE;
}

static int write_all(writer *w) {
  static const char free_room[HEADER_BYTES];
  cli_session *session = w->session;
  const cli_options *options = session->options;
  int status = cli_start_aside(session, options->output, &w->output);
  if (status) return status;
  if (w->has_header && cli_output_write(&w->output, free_room, sizeof free_room))
    status = TSR_ERROR_WRITE;
  for (size_t i = 0; status == 0 && i < options->operand_count; i++)
    status = encode_text(w, options->operands[i]);
  if (status == 0) status = write_header(w);
  return cli_leave_aside(session, &w->output, status);
}

/* ---- the summary ---- */

static int put_json(const writer *w, FILE *stream) {
  const char *path = w->session->options->output;
  size_t length = strlen(path);
  char *text = malloc(6 * length + 17);
  if (!text) return TSR_ERROR_MEMORY;
  text[tsr_json_text(path, length, text)] = 0;
  fprintf(
      stream,
      "{\"file\": \"%s\", \"tokens\": %" PRIu64 ", \"text_bytes\": %" PRIu64
      ", \"bytes_per_token\": %.4f, \"type\": \"%s\", \"header\": \"%s\", \"vocabulary\": %" PRIu32
      "}\n",
      text, w->token_count, w->text_bytes,
      w->token_count ? (double)w->text_bytes / (double)w->token_count : 0.0,
      w->is_wide ? "u32" : "u16", w->has_header ? "llmc" : "none",
      tsr_tokenizer_vocabulary(w->tokenizer));
  free(text);
  return 0;
}

static int put_summary(const writer *w) {
  cli_session *session = w->session;
  FILE *stream = cli_output_stream(&session->output);
  char tokens[32], bytes[32];
  if (!stream) return TSR_ERROR_WRITE;
  if (session->options->json) return put_json(w, stream);
  if (session->options->quiet) return 0;
  fprintf(stream, "%s tokens of %s bytes", cli_number_text(w->token_count, tokens),
          cli_number_text(w->text_bytes, bytes));
  if (w->token_count)
    fprintf(stream, ", %.2f bytes per token", (double)w->text_bytes / (double)w->token_count);
  fprintf(stream, "; %s, %s\n", w->is_wide ? "u32" : "u16",
          w->has_header ? "with llm.c's header"
          : w->is_wide  ? "read with --tokens u32"
                        : "read with --tokens u16");
  return 0;
}

int cli_tokens(cli_session *session) {
  const cli_options *options = session->options;
  const char *path = tsr_params_text(options->own, "tokenizer");
  writer w = {.session = session};
  if (!path) return cli_usage_error(options->command, "needs --tokenizer, a model's folder");
  if (!options->output || strcmp(options->output, "-") == 0)
    return cli_usage_error(options->command, "needs -o FILE, the file of tokens");
  session->path = path;
  int status = tsr_tokenizer_open(path, &w.tokenizer, &session->error);
  if (status == 0) status = find_end(&w, path);
  if (status == 0) status = read_type(&w);
  if (status == 0) status = write_all(&w);
  if (status == 0) status = put_summary(&w);
  tsr_tokenizer_free(w.tokenizer);
  return status;
}
