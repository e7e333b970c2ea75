/* named.h - allocations that the program itself named.
 *
 * There are three sources, the most telling first:
 *
 *   sidecar     tensors that were in the allocation when the snapshot was taken; what died before has none
 *   annotation  `annotate` events: attached to the one allocation that was live at their address,
 *               often long after it was made. They accumulate
 *   metadata    the `user_metadata` of the event that made it: the text that the thread had set then,
 *               and so shared by all that the thread allocated while it was set
 *
 * What an annotation says is true of the allocation at any time, also before it was annotated. */
#ifndef TSR_ATTRIBUTION_NAMED_H
#define TSR_ATTRIBUTION_NAMED_H

#include "attribution/remark.h"
#include "base/buffer.h"
#include "tessera/unstable/names.h"
#include "tessera/unstable/sidecar.h"
#include "timeline/timeline.h"

/* An annotation of an allocation. */
typedef struct tsr__note_remark {
  uint32_t allocation, remark;
  uint32_t event; /* the last that gives it */
} tsr__note_remark;

/* Invariants: `own`, if not NULL, has a row per allocation: index in remarks plus 1, or 0; `notes`
 * are by allocation, then by event, and each remark once per allocation. */
typedef struct tsr__names {
  const tsr__timeline *timeline; /* not owned */
  tsr__arena texts;
  TSR__VECTOR(tsr__remark) remarks; /* one for each text that is not empty */
  TSR__VECTOR(tsr__note_remark) notes;
  uint32_t *own;    /* NULL: nothing has metadata */
  bool has_tensors; /* there is a sidecar that names some */
  bool has_said;    /* some of its rows are TSR__SIDECAR_SAID: these are in `own` */
} tsr__names;

/* `out` is released by tsr__names_release, also when zeroed. Time is linear in events and in the
 * distinct texts. Fails with TSR_ERROR_MEMORY. */
int tsr__names_compute(const tsr__timeline *timeline, tsr__names *out, tsr_error *error);
void tsr__names_release(tsr__names *names);

/* Is anything named at all? */
bool tsr__names_any(const tsr__names *names);

/* What the snapshot itself says of an allocation, as rows of `remarks`: its metadata, TSR_NONE without;
 * and its annotations, `*count` of them, in their order. O(1), and O(log annotations). */
uint32_t tsr__names_metadata(const tsr__names *names, uint32_t allocation);
const tsr__note_remark *tsr__names_notes(const tsr__names *names, uint32_t allocation,
                                         size_t *count);

/* One name of an allocation. */
typedef struct tsr__given_name {
  tsr_text text;         /* never empty */
  const char *type;      /* of a tensor: "float32 [768]"; "" if unknown */
  uint64_t identity;     /* equal for equal names of one source that are not tensors' */
  uint64_t size_bytes;   /* of the tensor, or of the whole allocation */
  tsr_category category; /* UNKNOWN: it names none */
  tsr_name_source source;
  uint32_t event; /* that gives it; TSR_NONE for a tensor */
} tsr__given_name;

/* The number of names of an allocation, and the one at `index` below it: tensors, then annotations in
 * their order, then the metadata; one that several sources give, once. O(log names), and linear in the names
 * of the allocation if it has of both kinds. */
size_t tsr__names_count(const tsr__names *names, uint32_t allocation);
tsr__given_name tsr__names_at(const tsr__names *names, uint32_t allocation, size_t index);

/* Append the names of an allocation, the first ones of many: `layer 2, scores`; nothing if it has none. */
void tsr__names_append(const tsr__names *names, uint32_t allocation, tsr__buffer *out);

/* The category that they give: the tensors' with the most bytes, if several share one block, as
 * flat parameters do; or else that of the last annotation that names one; or else that of the
 * metadata. False, and `*category` untouched, if none does. */
bool tsr__names_category(const tsr__names *names, uint32_t allocation, tsr_category *category);

#endif
