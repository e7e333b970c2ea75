/* ranks.c - the answer about a fleet: see tessera/unstable/fleet.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/sort.h"
#include "fleet/fleet.h"

/* More are not listed one by one. */
enum { MOST_MISSING = 1 << 20 };

/* ---- The mesh that the user gives ---- */

/* Whether the last axis has a name that frameworks use, and no other one has it. */
static int check_axis(const tsr_rank_place *mesh, tsr_error *error) {
  static const char *const known[] = {
      "pp",       "dp",          "tp",        "cp",      "ep",       "sp",
      "etp",      "edp",         "ddp",       "fsdp",    "hsdp",     "vpp",
      "data",     "node",        "model",     "pipe",    "pipeline", "tensor",
      "context",  "sequence",    "expert",    "ulysses", "ring",     "dp_replicate",
      "dp_shard", "dp_shard_cp", "replicate", "shard",   "local",    "world"};
  const char *name = mesh->axes[mesh->axis_count - 1].name;
  bool is_known = false;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    is_known = is_known || !strcmp(name, known[i]);
  if (!is_known)
    return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                     "'%.30s' is not an axis of a mesh; axes are pp, dp, tp, cp, ep, sp, fsdp and "
                     "others that frameworks use",
                     name);
  for (size_t i = 0; i + 1 < mesh->axis_count; i++)
    if (!strcmp(mesh->axes[i].name, name))
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the mesh has the axis '%.30s' twice", name);
  return 0;
}

/* "pp=4,dp=8,tp=8" into axes, outermost first. */
static int parse_mesh(const char *text, tsr_rank_place *out, tsr_error *error) {
  const char *at = text;
  *out = (tsr_rank_place){.rank = -1, .world_size = 1};
  while (*at) {
    size_t length = strcspn(at, "=,");
    char *end = NULL;
    unsigned long size = at[length] == '=' ? strtoul(at + length + 1, &end, 10) : 0;
    bool is_valid = length && length < TSR_MESH_NAME_BYTES && size && size < 1u << 24 &&
                    (*end == ',' || !*end) && out->axis_count < TSR_MESH_AXES &&
                    out->world_size * (int64_t)size < (int64_t)UINT32_MAX;
    if (!is_valid)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "a mesh is names and sizes, outermost axis first, such as pp=4,dp=8,tp=8; "
                       "not '%.80s'",
                       text);
    tsr_mesh_axis *axis = &out->axes[out->axis_count++];
    for (size_t i = 0; i < length; i++)
      axis->name[i] = (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] + ('a' - 'A') : at[i]);
    int status = check_axis(out, error);
    if (status) return status;
    axis->size = (uint32_t)size;
    out->world_size *= (int64_t)size;
    at = *end ? end + 1 : end;
  }
  return 0;
}

static int give_mesh(tsr__fleet *fleet, const char *text, tsr_error *error) {
  tsr_rank_place mesh;
  int status = parse_mesh(text, &mesh, error);
  if (status) return status;
  for (size_t i = 0; i < fleet->members.count; i++) {
    tsr__member *m = &fleet->members.items[i];
    if (m->rank >= mesh.world_size)
      return tsr__fail(error, TSR_ERROR_ARGUMENT, TSR_OFFSET_NONE,
                       "the mesh %.80s has %lld ranks, but there is a rank %lld", text,
                       (long long)mesh.world_size, (long long)m->rank);
    m->place.axis_count = mesh.axis_count;
    int64_t left = m->rank;
    for (size_t k = mesh.axis_count; k-- > 0;) {
      m->place.axes[k] = mesh.axes[k];
      m->place.axes[k].at = (uint32_t)(left % mesh.axes[k].size);
      left /= mesh.axes[k].size;
    }
  }
  fleet->world_size = mesh.world_size;
  fleet->mesh_source = TSR_MESH_GIVEN;
  return 0;
}

/* ---- Rows ---- */

static bool list_rows(const tsr__fleet *fleet, tsr_ranks *out) {
  out->rows = TSR__NEW_ARRAY(tsr_rank_row, fleet->members.count);
  if (!out->rows) return false;
  for (size_t i = 0; i < fleet->members.count; i++) {
    const tsr__member *m = &fleet->members.items[i];
    const tsr__sketch_device *d = &m->sketch;
    tsr_rank_row *row = &out->rows[out->row_count++];
    *row = (tsr_rank_row){.rank = m->rank,
                          .path = fleet->files.items[m->file].path,
                          .device = d->device,
                          .is_other = m->is_other,
                          .is_partial = m->is_partial,
                          .step = m->step,
                          .group = m->group,
                          .peak_allocated_bytes = d->peak_bytes,
                          .peak_reserved_bytes = d->peak_reserved_bytes,
                          .end_allocated_bytes = d->end_bytes,
                          .end_reserved_bytes = d->end_reserved_bytes,
                          .peak_us = d->peak_us,
                          .taken_us = m->taken_us,
                          .is_out_of_memory = d->stop.event >= 0 || (m->says_oom && !m->is_other),
                          .has_history = d->event_count > 1,
                          .stop_us = d->stop.time_us,
                          .stop_bytes = d->stop.request_bytes,
                          .stop_stack = d->stop.stack,
                          .axis_count = m->place.axis_count,
                          .first_us = d->first_us,
                          .last_us = d->last_us,
                          .clock_us = m->clock_us};
    memcpy(row->category_bytes, m->category_bytes, sizeof row->category_bytes);
    memcpy(row->axes, m->place.axes, sizeof row->axes);
    memcpy(row->parts, d->parts, sizeof row->parts);
    out->rank_count += !m->is_other;
  }
  return true;
}

/* A row and when it died, by the median clock. */
typedef struct death {
  int64_t time_us;
  size_t row;
} death;

static int compare_deaths(const void *a, const void *b) {
  const death *x = a, *y = b;
  if ((x->time_us == TSR_TIME_NONE) != (y->time_us == TSR_TIME_NONE))
    return x->time_us == TSR_TIME_NONE ? 1 : -1;
  if (x->time_us != y->time_us) return x->time_us < y->time_us ? -1 : 1;
  return (x->row > y->row) - (x->row < y->row);
}

static int64_t common_time(const tsr_rank_row *row) {
  int64_t time_us; /* that of a file which lies may be anything */
  bool is_known = row->stop_us != TSR_TIME_NONE &&
                  !__builtin_sub_overflow(row->stop_us, row->clock_us, &time_us);
  return is_known ? time_us : row->stop_us;
}

static bool list_dead(tsr_ranks *out) {
  death *deaths = TSR__NEW_ARRAY(death, out->row_count);
  out->dead = TSR__NEW_ARRAY(size_t, out->row_count);
  if (deaths && out->dead) {
    for (size_t i = 0; i < out->row_count; i++)
      if (out->rows[i].is_out_of_memory)
        deaths[out->dead_count++] = (death){common_time(&out->rows[i]), i};
    tsr__sort(deaths, out->dead_count, sizeof *deaths, compare_deaths);
    for (size_t i = 0; i < out->dead_count; i++) out->dead[i] = deaths[i].row;
  }
  bool ok = deaths && out->dead;
  tsr__free(deaths);
  return ok;
}

static bool list_broken(const tsr__fleet *fleet, tsr_ranks *out) {
  out->broken = TSR__NEW_ARRAY(tsr_broken_file, fleet->files.count);
  if (!out->broken) return false;
  for (size_t i = 0; i < fleet->files.count; i++)
    if (fleet->files.items[i].message)
      out->broken[out->broken_count++] =
          (tsr_broken_file){fleet->files.items[i].path, fleet->files.items[i].message};
  return true;
}

/* Ranks below the world's size, or below the largest that is there, without a file that could be read. */
static bool list_missing(const tsr__fleet *fleet, tsr_ranks *out) {
  int64_t world = fleet->world_size;
  const tsr__member *last =
      fleet->members.count ? &fleet->members.items[fleet->members.count - 1] : NULL;
  if (last && last->rank >= world) world = last->rank + 1;
  size_t at = 0;
  TSR__VECTOR(int64_t) missing = {0};
  bool ok = true;
  for (int64_t rank = 0; ok && rank < world && missing.count < MOST_MISSING; rank++) {
    while (at < fleet->members.count && fleet->members.items[at].rank < rank) at++;
    if (at < fleet->members.count && fleet->members.items[at].rank == rank) continue;
    ok = TSR__VECTOR_PUSH(&missing, rank);
  }
  out->missing = missing.items;
  out->missing_count = missing.count;
  return ok;
}

static bool list_missing_parts(const tsr__fleet *fleet, tsr_ranks *out) {
  out->missing_parts = TSR__NEW_ARRAY(uint32_t, fleet->parts);
  bool *is_there = TSR__NEW_ARRAY(bool, (size_t)fleet->parts + 1);
  bool ok = out->missing_parts && is_there;
  for (size_t i = 0; ok && i < fleet->parts_seen.count; i++)
    if (fleet->parts_seen.items[i] <= fleet->parts) is_there[fleet->parts_seen.items[i]] = true;
  for (uint32_t i = 1; ok && i <= fleet->parts; i++)
    if (!is_there[i]) out->missing_parts[out->missing_part_count++] = i;
  tsr__free(is_there);
  return ok;
}

/* ---- All of it ---- */

void tsr_ranks_free(tsr_ranks *ranks) {
  if (!ranks) return;
  for (size_t i = 0; i < ranks->group_count; i++) tsr__free(ranks->groups[i].ranks);
  for (size_t i = 0; i < ranks->outlier_count; i++) tsr__free(ranks->outliers[i].changes);
  tsr__free(ranks->rows);
  tsr__free(ranks->groups);
  tsr__free(ranks->outliers);
  tsr__free(ranks->dead);
  tsr__free(ranks->stragglers);
  tsr__free(ranks->missing);
  tsr__free(ranks->broken);
  tsr__free(ranks->missing_parts);
  for (size_t i = 0; i < ranks->check_count; i++) tsr__free(ranks->checks[i].failed);
  tsr__free(ranks->checks);
  if (ranks->fleet) tsr__fleet_release(ranks->fleet);
  tsr__free(ranks->fleet);
  tsr__free(ranks);
}

int tsr_ranks_compute(const tsr_fleet_options *options, tsr_ranks **out, tsr_error *error) {
  tsr_ranks *ranks = TSR__NEW(tsr_ranks);
  tsr__fleet *fleet = TSR__NEW(tsr__fleet);
  if (!ranks || !fleet) {
    tsr__free(ranks);
    tsr__free(fleet);
    return tsr__fail_memory(error);
  }
  ranks->fleet = fleet;
  int status = tsr__fleet_read(options, fleet, error);
  if (!status && options->mesh) status = give_mesh(fleet, options->mesh, error);
  if (!status) status = tsr__fleet_group(fleet, ranks, error);
  if (!status) status = tsr__fleet_compare(fleet, options->top, ranks, error);
  if (!status) status = tsr__fleet_pace(fleet, ranks, error);
  if (!status && (!list_rows(fleet, ranks) || !list_dead(ranks) || !list_broken(fleet, ranks) ||
                  !list_missing(fleet, ranks) || !list_missing_parts(fleet, ranks)))
    status = tsr__fail_memory(error);
  if (!status) status = tsr__fleet_check(fleet, options, ranks, error);
  if (status) {
    tsr_ranks_free(ranks);
    return status;
  }
  tsr__fleet_forecast(fleet, options, ranks);
  ranks->file_count = fleet->files.count;
  ranks->known_count = fleet->known_count;
  ranks->rank_source = fleet->rank_source;
  ranks->mesh_source = fleet->mesh_source;
  ranks->name_form = fleet->name_form;
  ranks->world_size = fleet->world_size;
  ranks->stacks = fleet->stacks;
  *out = ranks;
  return 0;
}

const char *tsr_ranks_file(const tsr_ranks *ranks, size_t index) {
  return index < ranks->fleet->files.count ? ranks->fleet->files.items[index].path : NULL;
}

int tsr_ranks_sketches(const tsr_ranks *ranks, void **out, size_t *size_bytes, tsr_error *error) {
  tsr__buffer bytes = {0};
  if (!tsr__fleet_encode(ranks->fleet, &bytes)) {
    tsr__buffer_release(&bytes);
    return tsr__fail_memory(error);
  }
  *out = bytes.data;
  *size_bytes = bytes.size;
  return 0;
}

void tsr_ranks_sketches_free(void *sketches) {
  tsr__free(sketches);
}
