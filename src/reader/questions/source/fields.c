/* fields.c - what the answer of "source" has. */
#include "questions/shared/fields.h"

/* What a place of the source holds; with `--compare` it has the fields of a comparison instead. */
#define HOLDS                                                                                      \
  TSR__FIELD(BYTES, "self_bytes", "of stacks whose innermost frame in the file is here",           \
             .is_optional = true),                                                                 \
      TSR__FIELD(COUNT, "self_allocations", "their allocations", .is_optional = true),             \
      TSR__FIELD(BYTES, "inclusive_bytes", "of stacks with any frame here", .is_optional = true),  \
      TSR__FIELD(COUNT, "inclusive_allocations", "their allocations", .is_optional = true),        \
      TSR__PART(cost, "old", "with `--compare`: these four numbers in FILE", .is_optional = true), \
      TSR__PART(cost, "new", "and in OTHER", .is_optional = true),                                 \
      TSR__FIELD(DELTA, "self_delta_bytes", "OTHER less FILE", .is_optional = true),               \
      TSR__FIELD(DELTA, "inclusive_delta_bytes", "OTHER less FILE", .is_optional = true)

static const tsr_record cost = {
    .name = "SourceCost",
    .about = "What a place of the source holds in one of two files.",
    TSR__FIELDS(
        TSR__FIELD(BYTES, "self_bytes", "of stacks whose innermost frame in the file is here"),
        TSR__FIELD(COUNT, "self_allocations", "their allocations"),
        TSR__FIELD(BYTES, "inclusive_bytes", "of stacks with any frame here"),
        TSR__FIELD(COUNT, "inclusive_allocations", "their allocations")),
};

static const tsr_record other_file = {
    .name = "SourceFile",
    .about = "Another file of the same name.",
    TSR__FIELDS(TSR__FIELD(TEXT, "file", "its path in the snapshot")),
};

static const tsr_record line = {
    .name = "SourceLine",
    .about = "A line of the source, and what it holds.",
    TSR__FIELDS(TSR__FIELD(COUNT, "line", "its number, from 1"),
                TSR__FIELD(TEXT, "in",
                           "the innermost function or class around it; null at module level",
                           .is_nullable = true),
                TSR__FIELD(TEXT, "text",
                           "the line without its indentation; null beyond the end of the source",
                           .is_nullable = true),
                HOLDS),
};

static const tsr_record definition = {
    .name = "SourceDefinition",
    .about = "A function or class of the source, and what it holds.",
    TSR__FIELDS(
        TSR__FIELD(TEXT, "name", "`Block.forward`"),
        TSR__FIELD(COUNT, "first_line", "its first line; without `--compare`", .is_optional = true),
        TSR__FIELD(COUNT, "last_line", "its last line; without `--compare`", .is_optional = true),
        HOLDS),
};

static const tsr_record device = {
    .name = "SourceDevice",
    .about = "What the lines of the source hold on a device.",
    TSR__FIELDS(
        TSR__FIELD(DEVICE, "device", "its number"),
        TSR__FIELD(COUNT, "events", "events in its trace; without `--compare`",
                   .is_optional = true),
        TSR__PART(tsr__fields_held, "peak", "the peak of the trace; without `--compare`",
                  .is_optional = true),
        TSR__FIELD(TEXT, "file",
                   "the file's path in the snapshot; null if it has none of that name",
                   .is_nullable = true),
        TSR__LIST(other_file, "other_files", "other files of the same name, which are ignored"),
        TSR__FIELD(COUNT, "source_lines", "lines of the source given"),
        TSR__FIELD(COUNT, "mentioned_lines",
                   "distinct lines of the file that the snapshot mentions anywhere"),
        TSR__FIELD(COUNT, "lines_beyond", "of these, lines beyond the end of the source"),
        TSR__FIELD(COUNT, "lines_elsewhere",
                   "of these, lines that are in another function than in the snapshot: the source "
                   "is another version"),
        TSR__FIELD(BYTES, "bytes",
                   "of all stacks that have a frame in the file; without "
                   "`--compare`",
                   .is_optional = true),
        TSR__FIELD(COUNT, "allocations", "their allocations; without `--compare`",
                   .is_optional = true),
        TSR__FIELD(BYTES, "old_bytes",
                   "with `--compare`: of stacks with a frame in the file, in "
                   "FILE",
                   .is_optional = true),
        TSR__FIELD(BYTES, "new_bytes", "and in OTHER", .is_optional = true),
        TSR__LIST(line, "lines",
                  "most self bytes first, then most inclusive ones; with `--compare`, the largest "
                  "self difference first"),
        TSR__FIELD(COUNT, "omitted_lines", "lines omitted by `--top`"),
        TSR__FIELD(BYTES, "omitted_line_bytes",
                   "what the omitted lines hold themselves; without `--compare`",
                   .is_optional = true),
        TSR__LIST(definition, "functions",
                  "the same for each function; bytes of an inner function are not self bytes of "
                  "the outer one"),
        TSR__FIELD(COUNT, "omitted_functions", "functions omitted by `--top`"),
        TSR__LIST(definition, "classes", "the same for each class"),
        TSR__FIELD(COUNT, "omitted_classes", "classes omitted by `--top`")),
};

const tsr_record tsr__fields_source = {
    .name = "source",
    .about = "Which lines of a source file cost what.",
    .base = &tsr__fields_answer,
    TSR__FIELDS(TSR__LIST(device, "devices", "one for each device")),
};
