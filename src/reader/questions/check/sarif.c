/* sarif.c - failed checks as SARIF 2.1.0 (OASIS, "Static Analysis Results Interchange Format").
 *
 * One run; its driver lists the rules that can fail, and each failure is a result of level "error" at
 * the line that explains most of it, with the other lines as related locations. A location is a file's
 * URI: relative to the root if the file is below it, as code hosts expect, otherwise
 * absolute. Pseudo-files ("<stdin>", "??") have no location. A failure that no line explains is at
 * line 1 of the snapshot, because GitHub refuses a file in which a result has no location. */
#include <inttypes.h>
#include <string.h>

#include "emit/text.h"
#include "questions/check/words.h"
#include "tessera/version.h"

static const struct {
  const char *id, *text;
} rules[TSR_CHECK_RULE_COUNT] = {
    [TSR_CHECK_MAX_PEAK] = {"max-peak", "Allocated GPU memory stays within its budget."},
    [TSR_CHECK_MAX_CATEGORY] = {"max-category",
                                "Each category of GPU memory stays within its budget."},
    [TSR_CHECK_MAX_RESERVED] = {"max-reserved", "Reserved GPU memory stays within its budget."},
    [TSR_CHECK_LOCK_DEVICE] = {"lock-device", "The lock and the snapshot have the same devices."},
    [TSR_CHECK_LOCK_PEAK] = {"lock-peak", "Allocated GPU memory matches the lock."},
    [TSR_CHECK_LOCK_CATEGORY] = {"lock-category", "Each category of GPU memory matches the lock."},
};

/* ---- Where ---- */

static bool is_slash(char byte) {
  return byte == '/' || byte == '\\';
}

/* The part of `file` below the folder `root`, or all of it. */
static tsr_text below(tsr_text file, const char *root) {
  size_t size = root ? strlen(root) : 0;
  while (size > 1 && is_slash(root[size - 1])) size--;
  if (!size || size >= file.size_bytes) return file;
  for (size_t i = 0; i < size; i++)
    if (file.data[i] != root[i] && !(is_slash(file.data[i]) && is_slash(root[i]))) return file;
  if (size == 1) return file; /* the root of everything */
  return is_slash(file.data[size]) ? (tsr_text){file.data + size + 1, file.size_bytes - size - 1}
                                   : file;
}

static bool is_plain(unsigned char byte) {
  bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
  return is_letter || (byte >= '0' && byte <= '9') || (byte && strchr("-._~/!$&'()*+,;=@", byte));
}

/* A path as a URI reference (RFC 3986). */
static void append_uri(tsr__buffer *out, tsr_text path) {
  bool has_drive = path.size_bytes > 2 && path.data[1] == ':' && is_slash(path.data[2]);
  if (has_drive)
    tsr__buffer_text(out, "file:///");
  else if (path.size_bytes && is_slash(path.data[0]))
    tsr__buffer_text(out, "file://");
  for (size_t i = 0; i < path.size_bytes; i++) {
    unsigned char byte = (unsigned char)path.data[i];
    if (is_slash(path.data[i]))
      tsr__buffer_text(out, "/");
    else if (is_plain(byte) || (byte == ':' && has_drive && i == 1))
      tsr__buffer_append(out, &byte, 1);
    else
      tsr__buffer_printf(out, "%%%02X", byte);
  }
}

static bool has_location(const tsr__check_page *page, const tsr_check_cause *cause) {
  if (cause->cause.frame == TSR_NONE) return false;
  tsr_frame frame = tsr_snapshot_frame(page->input->snapshot, cause->cause.frame);
  tsr_text file = tsr_snapshot_string(page->input->snapshot, frame.file);
  bool has_file = file.size_bytes && file.data[0] != '<' && file.data[0] != '?';
  return has_file && frame.line && frame.line <= INT32_MAX;
}

static void emit_physical(tsr__emitter *emitter, const tsr__check_page *page, tsr_text file,
                          uint64_t line) {
  tsr__buffer *words = &emitter->scratch;
  tsr__emit_object(emitter, "physicalLocation");
  tsr__emit_object(emitter, "artifactLocation");
  append_uri(words, below(file, page->root));
  tsr__emit_field(emitter, "uri", NULL, tsr__text((tsr_text){words->data, words->size}));
  words->size = 0;
  tsr__emit_end(emitter);
  tsr__emit_object(emitter, "region");
  tsr__emit_field(emitter, "startLine", NULL, tsr__count(line));
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

static void emit_location(tsr__emitter *emitter, const tsr__check_page *page,
                          const tsr_check_device *device, const tsr_check_result *r,
                          const tsr_check_cause *cause) {
  tsr_frame frame = tsr_snapshot_frame(page->input->snapshot, cause->cause.frame);
  tsr__buffer *words = &emitter->scratch;
  tsr__emit_object(emitter, NULL);
  emit_physical(emitter, page, tsr_snapshot_string(page->input->snapshot, frame.file), frame.line);
  tsr__emit_object(emitter, "message");
  tsr__check_cause_words(page->printer, words, device, r, cause);
  tsr__emit_field(emitter, "text", NULL, tsr__text((tsr_text){words->data, words->size}));
  words->size = 0;
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* ---- The document ---- */

static void emit_driver(tsr__emitter *emitter) {
  tsr__emit_object(emitter, "tool");
  tsr__emit_object(emitter, "driver");
  tsr__emit_field(emitter, "name", NULL, tsr__string("tessera"));
  tsr__emit_field(emitter, "version", NULL, tsr__string(tsr_version()));
  tsr__emit_array(emitter, "rules");
  for (int i = 0; i < TSR_CHECK_RULE_COUNT; i++) {
    tsr__emit_object(emitter, NULL);
    tsr__emit_field(emitter, "id", NULL, tsr__string(rules[i].id));
    tsr__emit_object(emitter, "shortDescription");
    tsr__emit_field(emitter, "text", NULL, tsr__string(rules[i].text));
    tsr__emit_end(emitter);
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

static void emit_message(tsr__emitter *emitter, const tsr__check_page *page,
                         const tsr_check_result *r, const tsr_check_device *device) {
  tsr__buffer *words = &emitter->scratch;
  tsr__emit_object(emitter, "message");
  tsr__check_sentence(words, r);
  tsr__buffer_text(words, ".");
  for (size_t i = 0; device && i < r->cause_count; i++) {
    tsr__buffer_text(words, i ? "; " : " Most of it: ");
    tsr__check_cause_words(page->printer, words, device, r, &device->causes[r->causes[i]]);
  }
  if (device && r->cause_count) tsr__buffer_text(words, ".");
  tsr__emit_field(emitter, "text", NULL, tsr__text((tsr_text){words->data, words->size}));
  words->size = 0;
  tsr__emit_end(emitter);
}

/* The first line of the snapshot, without a message. */
static void emit_snapshot(tsr__emitter *emitter, const tsr__check_page *page) {
  const char *path = page->input->path;
  while (path[0] == '.' && is_slash(path[1]) && path[2]) path += 2;
  tsr__emit_array(emitter, "locations");
  tsr__emit_object(emitter, NULL);
  emit_physical(emitter, page, (tsr_text){path, strlen(path)}, 1);
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* The first line that has a place is the location; the others are related locations. */
static void emit_locations(tsr__emitter *emitter, const tsr__check_page *page,
                           const tsr_check_result *r, const tsr_check_device *device) {
  size_t told = 0;
  for (size_t i = 0; device && i < r->cause_count; i++) {
    const tsr_check_cause *cause = &device->causes[r->causes[i]];
    if (!has_location(page, cause)) continue;
    if (told < 2) {
      if (told) tsr__emit_end(emitter);
      tsr__emit_array(emitter, told ? "relatedLocations" : "locations");
    }
    emit_location(emitter, page, device, r, cause);
    told++;
  }
  if (told)
    tsr__emit_end(emitter);
  else
    emit_snapshot(emitter, page);
}

static void emit_result(tsr__emitter *emitter, const tsr__check_page *page,
                        const tsr_check_result *r) {
  const tsr_check_device *device = tsr__check_device_of(page->check, r);
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "ruleId", NULL, tsr__string(rules[r->rule].id));
  tsr__emit_field(emitter, "ruleIndex", NULL, tsr__count((uint64_t)r->rule));
  tsr__emit_field(emitter, "level", NULL, tsr__string("error"));
  emit_message(emitter, page, r, device);
  emit_locations(emitter, page, r, device);
  tsr__emit_object(emitter, "partialFingerprints");
  tsr__buffer_printf(&emitter->scratch, "%s/%s/%" PRIu32, rules[r->rule].id, tsr__check_subject(r),
                     r->device);
  tsr__emit_field(emitter, "check/v1", NULL,
                  tsr__text((tsr_text){emitter->scratch.data, emitter->scratch.size}));
  emitter->scratch.size = 0;
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

/* Warnings about the file belong to the run: the checks may have seen less than the run did. */
static void emit_invocation(tsr__emitter *emitter, const tsr__check_page *page) {
  tsr__emit_array(emitter, "invocations");
  tsr__emit_object(emitter, NULL);
  tsr__emit_field(emitter, "executionSuccessful", NULL, tsr__bool(!page->check->doubt));
  tsr__emit_array(emitter, "toolExecutionNotifications");
  for (size_t i = 0; i < page->warnings->count; i++) {
    const tsr_warning *warning = &page->warnings->items[i];
    tsr__emit_object(emitter, NULL);
    tsr__emit_object(emitter, "descriptor");
    tsr__emit_field(emitter, "id", NULL, tsr__string(warning->code));
    tsr__emit_end(emitter);
    tsr__emit_field(emitter, "level", NULL, tsr__string("warning"));
    tsr__emit_object(emitter, "message");
    tsr__emit_field(emitter, "text", NULL, tsr__string(warning->message));
    tsr__emit_end(emitter);
    tsr__emit_end(emitter);
  }
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
  tsr__emit_end(emitter);
}

static int append_piece(void *context, const char *data, size_t size_bytes) {
  tsr__buffer_append(context, data, size_bytes);
  return 0;
}

void tsr__check_sarif(const tsr__check_page *page) {
  tsr__emitter emitter;
  tsr_report_options options = {.format = TSR_REPORT_JSON};
  tsr__emitter_init(&emitter, &options, append_piece, page->out);
  tsr__emit_object(&emitter, NULL);
  tsr__emit_field(&emitter, "$schema", NULL,
                  tsr__string("https://json.schemastore.org/sarif-2.1.0.json"));
  tsr__emit_field(&emitter, "version", NULL, tsr__string("2.1.0"));
  tsr__emit_array(&emitter, "runs");
  tsr__emit_object(&emitter, NULL);
  emit_driver(&emitter);
  emit_invocation(&emitter, page);
  tsr__emit_field(&emitter, "columnKind", NULL, tsr__string("unicodeCodePoints"));
  tsr__emit_array(&emitter, "results");
  for (size_t i = 0; i < page->check->result_count; i++)
    if (!page->check->results[i].is_passed) emit_result(&emitter, page, &page->check->results[i]);
  tsr__emit_end(&emitter);
  tsr__emit_end(&emitter);
  tsr__emit_end(&emitter);
  tsr__emit_end(&emitter);
  if (tsr__emitter_finish(&emitter, NULL)) page->out->failed = true;
}
