/* outside.c - see outside.h.
 *
 * What NCCL allocates for a communicator on each rank's card, by its sources (src/transport: p2p.cc, net.cc, nvls.cc; versions 2.18 to 2.28), in
 * units of 2 MiB, the granularity of the driver:
 *
 *   for sends     channels for sends and receives * 16 steps * chunk, allocated with the communicator
 *   a connection  where data arrives: LL + LL128 + Simple, where it leaves: a page. If ranks read the buffers of others, as on
 *                 A100s, Simple is where it leaves.
 *   rings         one connection in and one out for each channel
 *   trees         within a machine they are chains along the ring: over n > 2 ranks, n - 1 connections against the ring's direction
 *   network       for each channel of a machine: a ring's two ends, and a tree's parent and two children, both ways. Each has LL128 + Simple on the card
 *   NVLink SHARP  2 * channels * 8 steps * 128 KiB for each rank of the machine
 *   all-to-all    a connection in and one out for each peer and channel for sends
 *
 * The four figures that are public and specified agree: outside_rows.def. Connections are made when an algorithm is first used (since
 * 2.22), which is why the low end has rings alone. */
#include "exec/outside.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "tessera/unstable/params.h"

#define MiB ((uint64_t)1 << 20)

enum {
  GRANULE = 2 << 20,
  PAGE = 4096,
  STEPS = 8,
  SHARED_STEPS = 16,
  SHARP_CHUNK = 128 << 10,
  MOST_CARDS = 72, /* of a machine: NVL72 */
  USUAL_CARDS = 8, /* where nobody has said */
  MOST_RANKS = 1 << 20,
  MOST_CHANNELS = 64,
  DECIMAL_GIGA = 1000000000
};
#define MOST_BUFFER       ((uint64_t)1 << 30)
#define MOST_MEASURED     ((uint64_t)1 << 44)
#define LINKS_BYTES_PER_S 100e9 /* NVLink and AMD's links are faster, PCIe is slower */

typedef struct card_row {
  uint16_t capability, capability_end;
  uint16_t context[3], libraries[3]; /* MiB */
  const char *source;
} card_row;

#define TSR__OUTSIDE_CARD(first, end, c1, c2, c3, l1, l2, l3, from) \
  {first, end, {c1, c2, c3}, {l1, l2, l3}, from},
#define TSR__OUTSIDE_NCCL(...)
static const card_row card_rows[] = {
#include "exec/outside_rows.def"
};
#undef TSR__OUTSIDE_CARD
#undef TSR__OUTSIDE_NCCL

typedef struct nccl_row {
  uint16_t capability, capability_end;
  bool has_links;
  uint8_t channels_least, channels, channels_most, send_channels;
  uint16_t chunk_kib;
  uint8_t sharp_channels;
  bool reads;
  const char *source;
} nccl_row;

#define TSR__OUTSIDE_CARD(...)
#define TSR__OUTSIDE_NCCL(first, end, links, least, all, most, sends, chunk, sharp, reads, from) \
  {first, end, links, least, all, most, sends, chunk, sharp, reads, from},
static const nccl_row nccl_rows[] = {
#include "exec/outside_rows.def"
};
#undef TSR__OUTSIDE_CARD
#undef TSR__OUTSIDE_NCCL

static const card_row *card_row_of(uint8_t capability) {
  const card_row *row = card_rows;
  while (capability < row->capability || capability >= row->capability_end) {
    row++;
    assert(row < card_rows + sizeof card_rows / sizeof *card_rows);
  }
  return row;
}

/* The last row is for all cards without links. */
static const nccl_row *nccl_row_of(const tsr__nccl_job *job) {
  const nccl_row *row = nccl_rows, *last = nccl_rows + sizeof nccl_rows / sizeof *nccl_rows - 1;
  while (row < last && (!job->has_links || job->capability < row->capability ||
                        job->capability >= row->capability_end))
    row++;
  return row;
}

static uint64_t at_most(uint64_t value, uint64_t most) {
  return value < most ? value : most;
}

static uint64_t or_default(uint64_t value, uint64_t standard, uint64_t most) {
  return at_most(value ? value : standard, most);
}

/* ---- NCCL ---- */

static uint64_t granules(uint64_t bytes) {
  return (bytes + PAGE + GRANULE - 1) / GRANULE * GRANULE;
}

typedef struct connection {
  uint64_t pair;    /* one in and one out */
  uint64_t network; /* one way */
} connection;

static connection connection_of(const tsr__nccl_job *job, bool reads) {
  uint64_t simple = or_default(job->simple_bytes, 4 * MiB, MOST_BUFFER);
  uint64_t ll = or_default(job->ll_bytes, 8 * 512 * STEPS * 16, MOST_BUFFER);
  uint64_t ll128 = or_default(job->ll128_bytes, 120 * 640 * STEPS * 8, MOST_BUFFER);
  return (connection){granules(ll + ll128 + (reads ? 0 : simple)) + granules(reads ? simple : 0),
                      granules(ll128 + simple)};
}

static uint64_t over(uint64_t bytes, uint64_t ranks) {
  return (bytes + ranks - 1) / ranks;
}

tsr_outside_range tsr__nccl_bytes(const tsr__nccl_job *job) {
  const nccl_row *row = nccl_row_of(job);
  uint64_t ranks = at_most(job->ranks, MOST_RANKS);
  uint64_t cards = or_default(job->ranks_a_machine, USUAL_CARDS, MOST_CARDS);
  uint64_t local = at_most(ranks, cards), peers = at_most(job->peers, ranks ? ranks - 1 : 0);
  uint64_t least = or_default(job->channels, row->channels_least, MOST_CHANNELS);
  uint64_t channels = or_default(job->channels, row->channels, MOST_CHANNELS);
  uint64_t most = or_default(job->channels, row->channels_most, MOST_CHANNELS);
  uint64_t sends = row->send_channels;
  connection c = connection_of(job, row->reads);
  if (ranks < 2) return (tsr_outside_range){0, 0, 0};
  uint64_t shared = sends * SHARED_STEPS * row->chunk_kib * 1024;
  uint64_t direct = peers * sends * c.pair;
  tsr_outside_range out = {shared, shared + direct, shared + direct};
  if (row->has_links) out.low_bytes += direct / 2;
  if (local > 1) {
    uint64_t chained = local > 2 ? 2 * local - 1 : local; /* pairs of all ranks, rings and trees */
    out.low_bytes += least * c.pair;
    out.likely_bytes += over(channels * chained * c.pair, local);
    out.high_bytes += most * (local > 2 ? 2 : 1) * c.pair;
  }
  if (ranks > local) {
    out.low_bytes += over(least * 2 * c.network, local);
    out.likely_bytes += over(channels * 4 * c.network, local);
    out.high_bytes += over(most * 8 * c.network, local);
  }
  if (local > 2) out.high_bytes += 2 * (uint64_t)row->sharp_channels * STEPS * SHARP_CHUNK * local;
  assert(out.low_bytes <= out.likely_bytes && out.likely_bytes <= out.high_bytes);
  return out;
}

const char *tsr__nccl_source(const tsr__nccl_job *job) {
  return nccl_row_of(job)->source;
}

/* ---- by the table ---- */

static tsr_outside_range range_of(const uint16_t mebibytes[3]) {
  return (tsr_outside_range){mebibytes[0] * MiB, mebibytes[1] * MiB, mebibytes[2] * MiB};
}

/* Communicators of a rank: one for all ranks; with replicas, one among them and one within them, and that for all may exist, too. */
typedef struct communicators {
  uint64_t likely, most;
} communicators;

static communicators communicators_of(const tsr_simulate_options *how) {
  if (how->ranks < 2) return (communicators){0, 0};
  return how->replicas > 1 ? (communicators){2, 3} : (communicators){1, 1};
}

static tsr_outside_range nccl_by_table(const tsr__data_sheet *gpu,
                                       const tsr_simulate_options *how) {
  communicators count = communicators_of(how);
  tsr_outside_range one =
      tsr__nccl_bytes(&(tsr__nccl_job){.capability = gpu->capability,
                                       .has_links = gpu->peer_bytes_per_s > LINKS_BYTES_PER_S,
                                       .ranks = how->ranks,
                                       .ranks_a_machine = how->ranks_per_node});
  return (tsr_outside_range){one.low_bytes * count.likely, one.likely_bytes * count.likely,
                             one.high_bytes * count.most};
}

static void add_up(tsr_outside *out) {
  out->whole = (tsr_outside_range){0, 0, 0};
  for (int i = 0; i < TSR_OUTSIDE_PARTS; i++) {
    out->whole.low_bytes += out->parts[i].low_bytes;
    out->whole.likely_bytes += out->parts[i].likely_bytes;
    out->whole.high_bytes += out->parts[i].high_bytes;
  }
}

tsr_outside tsr__outside_by_table(const tsr__data_sheet *gpu, const tsr_simulate_options *how) {
  const card_row *row = card_row_of(gpu->capability);
  tsr_outside out = {.source = TSR_OUTSIDE_TABLE,
                     .card = gpu->title,
                     .visible_bytes = (uint64_t)gpu->visible_bytes};
  out.parts[TSR_OUTSIDE_CONTEXT] = range_of(row->context);
  out.parts[TSR_OUTSIDE_LIBRARIES] = range_of(row->libraries);
  out.parts[TSR_OUTSIDE_NCCL] = nccl_by_table(gpu, how);
  add_up(&out);
  return out;
}

const char *tsr__outside_card_source(const tsr__data_sheet *gpu) {
  return card_row_of(gpu->capability)->source;
}

/* ---- what was measured ---- */

enum { CARD_NAME = 128 };

typedef struct measured {
  char name[CARD_NAME], at[sizeof((tsr_outside *)0)->measured_at];
  bool has[TSR_OUTSIDE_PARTS];
  uint64_t bytes[TSR_OUTSIDE_PARTS]; /* of NCCL: of a communicator */
} measured;

struct tsr__machine {
  size_t count;
  measured devices[TSR_MACHINE_MOST_DEVICES];
};

static int refuse(tsr_error *error, size_t index, const char *what) {
  return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                   "devices[%zu] of the machine's file: %s", index, what);
}

/* Printable text alone; false for anything else, or if it is too long. */
static bool take_text(const json_t *value, char *out, size_t room_bytes) {
  const char *text = json_string_value(value);
  size_t length = text ? strlen(text) : 0;
  if (!text || length >= room_bytes || json_string_length(value) != length) return false;
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)text[i] < ' ' || text[i] == 127) return false;
  memcpy(out, text, length + 1);
  return true;
}

static int read_device(const json_t *device, size_t index, measured *out, tsr_error *error) {
  static const char *const keys[TSR_OUTSIDE_PARTS] = {"context_bytes", "libraries_bytes",
                                                      "nccl_bytes_per_communicator"};
  const json_t *at = json_object_get(device, "measured_at");
  if (!json_is_object(device)) return refuse(error, index, "no object");
  if (!take_text(json_object_get(device, "name"), out->name, sizeof out->name))
    return refuse(error, index, "'name' must be a text of less than 128 bytes");
  if (at && !json_is_null(at) && !take_text(at, out->at, sizeof out->at))
    return refuse(error, index, "'measured_at' must be a text of less than 40 bytes");
  for (int i = 0; i < TSR_OUTSIDE_PARTS; i++) {
    const json_t *value = json_object_get(device, keys[i]);
    if (!value || json_is_null(value)) continue;
    json_int_t bytes = json_is_integer(value) ? json_integer_value(value) : -1;
    if (bytes < 0 || (uint64_t)bytes > MOST_MEASURED) {
      char text[64];
      (void)snprintf(text, sizeof text, "'%s' must be a number of bytes", keys[i]);
      return refuse(error, index, text);
    }
    out->has[i] = true;
    out->bytes[i] = (uint64_t)bytes;
  }
  return 0;
}

static int read_machine(const json_t *root, tsr__machine *out, tsr_error *error) {
  const char *schema = json_string_value(json_object_get(root, "schema"));
  const json_t *devices = json_object_get(root, "devices");
  if (!schema || strcmp(schema, "tessera/machine/1") != 0)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "not what tessera doctor writes: 'schema' is not 'tessera/machine/1'");
  if (!json_is_array(devices) || json_array_size(devices) > TSR_MACHINE_MOST_DEVICES)
    return tsr__fail(error, TSR_ERROR_FORMAT, TSR_OFFSET_NONE,
                     "'devices' of the machine's file must be a list of at most %d",
                     TSR_MACHINE_MOST_DEVICES);
  int status = 0;
  for (size_t i = 0; status == 0 && i < json_array_size(devices); i++)
    status = read_device(json_array_get(devices, i), i, &out->devices[out->count++], error);
  return status;
}

int tsr__machine_parse(const char *text, size_t size_bytes, tsr__machine **out, tsr_error *error) {
  json_t *root = NULL;
  if (size_bytes > TSR_MACHINE_MOST_BYTES)
    return tsr__fail(error, TSR_ERROR_LIMIT, TSR_OFFSET_NONE,
                     "the machine's file is larger than 1 MiB");
  int status = tsr_json_load(text, size_bytes, JSON_REJECT_DUPLICATES,
                             "not what tessera doctor writes", &root, error);
  tsr__machine *machine = status ? NULL : TSR__NEW(tsr__machine);
  if (status == 0) status = machine ? read_machine(root, machine, error) : tsr__fail_memory(error);
  json_decref(root);
  if (status)
    tsr__machine_free(machine);
  else
    *out = machine;
  return status;
}

void tsr__machine_free(tsr__machine *machine) {
  tsr__free(machine);
}

int tsr_machine_file_check(const char *text, size_t size_bytes, tsr_error *error) {
  tsr__machine *machine = NULL;
  int status = tsr__machine_parse(text, size_bytes, &machine, error);
  if (status == 0) tsr__machine_free(machine);
  return status;
}

/* ---- names of cards ---- */

static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_word(char c) {
  return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z');
}

/* Take the next word of letters and digits, in small letters and possibly cut short; false at the end. */
static bool next_word(const char **text, char word[32]) {
  size_t length = 0;
  while (**text && !is_word(**text)) (*text)++;
  for (; is_word(**text); (*text)++)
    if (length < 31) word[length++] = lower(**text);
  word[length] = '\0';
  return length > 0;
}

static bool same_words(const char *a, const char *b) {
  char x[32], y[32];
  bool more = true;
  while (more) {
    more = next_word(&a, x);
    if (more != next_word(&b, y) || strcmp(x, y) != 0) return false;
  }
  return true;
}

/* "80gb" */
static bool is_size_of(const char *word, uint64_t memory_bytes, bool *is_size) {
  char own[32];
  size_t digits = strspn(word, "0123456789");
  *is_size = digits > 0 && strcmp(word + digits, "gb") == 0;
  (void)snprintf(own, sizeof own, "%llugb", (unsigned long long)(memory_bytes >> 30));
  return strcmp(word, own) == 0;
}

bool tsr__card_is_called(const tsr__data_sheet *gpu, const char *name) {
  char word[32], model[32];
  const char *own = gpu->name;
  bool is_model = false, is_size;
  if (strstr(gpu->title, "GeForce")) return same_words(gpu->title, name);
  (void)next_word(&own, model); /* "a100" of "a100-40" */
  while (next_word(&name, word)) {
    /* Other cards of the same chip */
    if (strcmp(word, "pcie") == 0 || strcmp(word, "nvl") == 0 || strcmp(word, "mig") == 0)
      return false;
    if (!is_size_of(word, gpu->memory_bytes, &is_size) && is_size) return false;
    is_model |= strcmp(word, model) == 0;
  }
  return is_model;
}

/* ---- the question ---- */

static void take_measured(const tsr__outside_question *q, const tsr__data_sheet *gpu,
                          tsr_outside *out) {
  const measured *found = NULL;
  for (size_t i = 0; q->machine && i < q->machine->count && !found; i++)
    if (tsr__card_is_called(gpu, q->machine->devices[i].name)) found = &q->machine->devices[i];
  if (!found) return;
  communicators count = communicators_of(q->how);
  for (int i = 0; i < TSR_OUTSIDE_PARTS; i++) {
    uint64_t bytes = found->bytes[i];
    bool is_nccl = i == TSR_OUTSIDE_NCCL;
    if (!found->has[i] || (is_nccl && !count.likely)) continue;
    out->parts[i] = is_nccl ? (tsr_outside_range){bytes * count.likely, bytes * count.likely,
                                                  bytes * count.most}
                            : (tsr_outside_range){bytes, bytes, bytes};
    out->source = TSR_OUTSIDE_MEASURED;
  }
  if (out->source == TSR_OUTSIDE_MEASURED) memcpy(out->measured_at, found->at, sizeof found->at);
  add_up(out);
}

static uint64_t left_of(const tsr_outside *o) {
  return tsr__drop_u64(o->visible_bytes, o->whole.high_bytes);
}

/* A file that leaves nothing of the card is not believed. */
static tsr_outside estimate(const tsr__outside_question *q, const tsr__data_sheet *gpu) {
  tsr_outside by_table = tsr__outside_by_table(gpu, q->how), out = by_table;
  take_measured(q, gpu, &out);
  assert(left_of(&by_table));
  return left_of(&out) ? out : by_table;
}

/* Whether the limit is the memory of such a card, as "24GiB" or "24GB" have it. */
static bool is_whole(const tsr__data_sheet *gpu, uint64_t limit_bytes) {
  return limit_bytes == gpu->memory_bytes ||
         limit_bytes == (gpu->memory_bytes >> 30) * DECIMAL_GIGA;
}

/* The roomiest card that has this memory; none: false. */
static bool infer(const tsr__outside_question *q, tsr_outside *out) {
  const tsr__data_sheet *gpu;
  bool any = false;
  for (size_t i = 0; (gpu = tsr__data_sheet_at(i)); i++) {
    if (!is_whole(gpu, q->limit_bytes)) continue;
    tsr_outside own = estimate(q, gpu);
    if (any && left_of(&own) <= left_of(out)) continue;
    any = true;
    *out = own;
    out->is_card_inferred = true;
  }
  return any;
}

/* For the card that was named, or else that the limit stands for. */
static void estimate_card(const tsr__outside_question *q, tsr_outside *out) {
  const tsr__data_sheet *traced = q->limit_bytes ? q->traced_gpu : NULL;
  if (q->gpu)
    *out = estimate(q, q->gpu);
  else if (traced && is_whole(traced, q->limit_bytes))
    *out = estimate(q, traced);
  else if (q->limit_bytes && !infer(q, out) && traced && q->limit_bytes < traced->memory_bytes)
    *out = estimate(q, traced);
}

static int take_given(const tsr__outside_question *q, uint64_t bytes, tsr_outside *out,
                      tsr_error *error) {
  *out = (tsr_outside){.source = TSR_OUTSIDE_GIVEN, .whole = {bytes, bytes, bytes}};
  if (q->gpu) {
    out->card = q->gpu->title;
    out->visible_bytes = (uint64_t)q->gpu->visible_bytes;
  } else {
    out->visible_bytes = q->limit_bytes;
  }
  if (!out->visible_bytes || bytes < out->visible_bytes) return 0;
  char text[16], has[16];
  return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                   "%s leaves nothing of the %s that programs can have",
                   tsr_size_text(bytes, text, sizeof text),
                   tsr_size_text(out->visible_bytes, has, sizeof has));
}

int tsr__outside_of(const tsr__outside_question *q, tsr_outside *out, tsr_error *error) {
  bool is_auto = !q->text || strcmp(q->text, "auto") == 0, is_none = false;
  uint64_t bytes = 0;
  int status = 0;
  if (!is_auto) is_none = strcmp(q->text, "none") == 0;
  if (!is_auto && !is_none && !tsr_size_parse(q->text, &bytes))
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "takes a size such as 1.5GiB, auto or none, not '%.40s'", q->text);
  tsr_outside found = {.source = TSR_OUTSIDE_NOT_COUNTED};
  bool has_context = q->how->book != TSR_BOOK_OWN; /* tessera's own ops run on processors */
  if (bytes)
    status = take_given(q, bytes, &found, error);
  else if (is_auto && has_context)
    estimate_card(q, &found);
  if (status) return status;
  found.asked_bytes = found.share_bytes = q->limit_bytes;
  if (found.source != TSR_OUTSIDE_NOT_COUNTED && q->limit_bytes > left_of(&found))
    found.share_bytes = left_of(&found);
  assert(!q->limit_bytes || found.share_bytes);
  *out = found;
  return 0;
}

/* ---- words ---- */

const char *tsr_outside_part_name(tsr_outside_part part) {
  static const char *const names[TSR_OUTSIDE_PARTS] = {"context", "libraries", "nccl"};
  return names[part];
}

const char *tsr_outside_source_name(tsr_outside_source source) {
  static const char *const names[] = {"none", "table", "machine", "option"};
  return names[source];
}
