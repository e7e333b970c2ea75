/* page.h - shared by the parts of the page's writer.
 *
 * A page, and each part that a served page requests, is a *bundle*: a head in JSON, which lists the
 * columns by name and length before compression, and the columns, as one zlib stream. The encoding of
 * each column is documented where it is packed, in columns.c; viewer/src/decode.ts decodes it. */
#ifndef TSR_PAGE_PAGE_H
#define TSR_PAGE_PAGE_H

#include "page/names.h"
#include "page/pack.h"
#include "page/template.h"
#include "tessera/unstable/view.h"

typedef struct tsr__bundle {
  tsr__page_names *names;
  tsr__pack pack;
  tsr__buffer head;
  tsr__buffer directory; /* the head's list of columns */
  uint64_t column_start;
  bool ok; /* false: out of memory */
} tsr__bundle;

/* `level` is zlib's. Fails with TSR_ERROR_MEMORY; released by tsr__bundle_release in any case. */
int tsr__bundle_open(tsr__bundle *bundle, tsr__page_names *names, int level, size_t most_bytes,
                     tsr_error *error);
void tsr__bundle_release(tsr__bundle *bundle);

/* Begin a column of the page, and end it. */
void tsr__bundle_column(tsr__bundle *p, const char *name);
void tsr__bundle_column_end(tsr__bundle *p);

/* One device, or a range of it. `ids` are those of its file. */
typedef struct tsr__page_track {
  const tsr_snapshot *snapshot;
  tsr__page_ids *ids;
  size_t input;
  const tsr_view_device *device;
  const tsr_view_cut *cut;
} tsr__page_track;

/* The columns of a track's cut, and of its lanes; `number` is part of their names. */
void tsr__page_pack_cut(tsr__bundle *p, const tsr__page_track *t, size_t number);
void tsr__page_pack_lanes(tsr__bundle *p, const tsr__page_track *t, size_t number);
/* The ledger of the card of a track: in the head, and its columns. */
void tsr__page_head_card(tsr__bundle *p, const tsr__page_track *t);
void tsr__page_pack_card(tsr__bundle *p, const tsr__page_track *t, size_t number);
/* The column `labels`: what each stack is called that has a node by now (attribution/labels.h). Adds strings.
 * `ids` are by input. */
void tsr__page_pack_labels(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                           size_t input_count);
/* The columns `place.op`, `place.module` and `place.line`: the same for the operation, module and line. */
void tsr__page_pack_places(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                           size_t input_count);
/* The column `pairs`: which stacks of two files are the same although lines or paths moved, as `tessera
 * diff` finds it. `ids` are by input; only stacks that have a node count, so names are not added. Nothing
 * for a single file, or for more than TSR__MOST_PAIRED. */
#define TSR__MOST_PAIRED 8
void tsr__page_pack_pairs(tsr__bundle *p, const tsr_page_input *inputs, const tsr__page_ids *ids,
                          size_t input_count);
/* The column `lines`: the same for lines of code, if the page groups by them. Its names are strings of the
 * page. Nothing for a single track, or for more than TSR__MOST_PAIRED. */
void tsr__page_pack_lines(tsr__bundle *p, const tsr__page_track *tracks, size_t track_count);
/* The moments at which `tessera diff` compares each two tracks of different files, in the head. Nothing for a
 * single file, or for more than TSR__MOST_PAIRED tracks. */
void tsr__page_head_compared(tsr__bundle *p, const tsr__page_track *tracks, size_t track_count);
/* The columns of the names of everything packed before. */
void tsr__page_pack_names(tsr__bundle *p);

/* The head of a page, and of a part of it. */
void tsr__page_head(tsr__bundle *p, const tsr_page_input *inputs, size_t input_count,
                    const tsr__page_track *tracks, size_t track_count,
                    const tsr_page_options *options);
void tsr__part_head(tsr__bundle *p, const tsr__page_track *track);
/* The list of columns, which ends a head. */
void tsr__head_columns(tsr__bundle *p);

/* Move a bundle's head and columns to `head` and `data`, which the caller releases. Fails with TSR_ERROR_MEMORY, or _LIMIT for columns
 * that are larger than they may be. */
int tsr__bundle_finish(tsr__bundle *bundle, tsr__buffer *head, tsr__buffer *data, tsr_error *error);

/* ---- Writing (write.c) ---- */

/* A page's limit unless its options set one. */
enum { TSR__PAGE_MOST_BYTES = 20000000 };

/* Where a page goes; nothing is written once that has failed. */
typedef struct tsr__page_writer {
  tsr_write_fn *write;
  void *context;
  bool failed;
} tsr__page_writer;

void tsr__page_bytes(tsr__page_writer *w, const void *data, size_t size_bytes);
/* 0, or TSR_ERROR_WRITE if the output has failed. */
int tsr__page_written(const tsr__page_writer *w, tsr_error *error);
/* A template with its data. `asks` is whom the page may ask, as in a content security policy. Fails with TSR_ERROR_WRITE. */
int tsr__page_put(tsr__page_writer *w, const tsr__template *page, const char *asks,
                  const tsr__buffer *head, const tsr__buffer *data, tsr_error *error);
/* Bytes of a page besides its head and its columns. */
uint64_t tsr__template_bytes(const tsr__template *page);

#endif
