/* names.h - which rank, step and time the name of a snapshot's file tells.
 *
 * Frameworks name the snapshots of ranks in ten ways, of which a few tokens are what matters:
 *
 *   rank3, rank-3, rank_3                in the name of the file or of its folder: most of them
 *   000017_step_20.pickle                torchtitan: six digits are the rank
 *   1712-TP-3-memory-decode.pickle       SGLang: coordinates
 *   base_17.pickle                       Megatron: the last number, which elsewhere is a step or a process
 *
 * The last form is decided by all names together (tsr__file_names_settle). */
#ifndef TSR_FLEET_NAMES_H
#define TSR_FLEET_NAMES_H

#include "base/error.h"
#include "tessera/unstable/sidecar.h"

/* -1: the name does not tell. */
typedef struct tsr__file_name {
  const char *path; /* not owned */
  int64_t rank, step, world_size;
  int64_t stamp; /* a time in the name or its folder, as a number that grows; its unit differs */
  int64_t last_number; /* at the end of the name, if it may be a rank */
  size_t base_bytes;   /* of the path, before that number */
  bool says_oom;       /* the program wrote the file because memory ran out */
  const char *form;    /* who names files so; NULL: a common form */
  tsr_mesh_axis axes[TSR_MESH_AXES];
  size_t axis_count;
} tsr__file_name;

/* Linear in the path. */
void tsr__file_name_read(const char *path, tsr__file_name *out);

/* Decide what the last numbers of names are that tell no rank: ranks, if the names are equal but for them and the numbers are those
 * of ranks, 0, 1, 2, with few missing. Coordinates become ranks, too. Fails with TSR_ERROR_ARGUMENT, and a message with the remedy, if
 * they may be something else. O(count log count). */
int tsr__file_names_settle(tsr__file_name *names, size_t count, tsr_error *error);

/* A regular expression of the user's with groups named rank, step, world_size or an axis. */
typedef struct tsr__name_pattern tsr__name_pattern;
/* Of the syntax of PCRE2. TSR_ERROR_ARGUMENT, with a message, or TSR_ERROR_MEMORY. Used by one thread at a time. */
int tsr__name_pattern_new(const char *text, tsr__name_pattern **out, tsr_error *error);
void tsr__name_pattern_free(tsr__name_pattern *pattern);
/* What the path tells; nothing if it does not match, or exceeds the limits of matching. Fails with TSR_ERROR_MEMORY. */
int tsr__name_pattern_read(const tsr__name_pattern *pattern, const char *path, tsr__file_name *out,
                           tsr_error *error);

#endif
