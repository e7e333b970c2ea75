/* mcp_cache.c - the snapshots opened last, so that a conversation does not read a gigabyte for each
 * question.
 *
 * A file is known by its path, and by device, inode, size and time of change, so that a snapshot
 * written again is read again. Only regular files are read: standard input is the protocol's, and a
 * pipe or a terminal could be waited for without end.
 */
#define _XOPEN_SOURCE 700

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tessera/unstable/columns.h>

#include "core/system.h"
#include "mcp.h"

static int fail(tsr_error *error, tsr_status status, const char *reason) {
  *error = (tsr_error){.status = status, .offset = TSR_OFFSET_NONE};
  (void)snprintf(error->message, sizeof error->message, "%s", reason);
  return (int)status;
}

/* Bytes per event of the snapshot's columns, and of what its study keeps once it was asked: a timeline,
 * categories and the like, of traces in which every third event is an allocation. */
enum { EVENT_BYTES = 48, STUDY_EVENT_BYTES = 24 };

/* What an open snapshot and its study hold, nearly: columns, blocks, stacks and strings. */
static uint64_t held_bytes(const tsr_snapshot *snapshot) {
  size_t devices, segments, blocks;
  const uint32_t *device = tsr_snapshot_devices(snapshot, &devices);
  uint64_t bytes = 0;
  for (size_t i = 0; i < devices; i++)
    bytes += tsr_snapshot_events(snapshot, device[i]).count * (EVENT_BYTES + STUDY_EVENT_BYTES);
  tsr_snapshot_segments(snapshot, &segments);
  tsr_snapshot_blocks(snapshot, &blocks);
  bytes += segments * sizeof(tsr_segment) + blocks * sizeof(tsr_block);
  for (uint32_t i = 0; i < tsr_snapshot_stack_count(snapshot); i++)
    bytes += tsr_snapshot_stack(snapshot, i).depth * sizeof(uint32_t) + 32;
  for (uint32_t i = 0; i < tsr_snapshot_string_count(snapshot); i++)
    bytes += tsr_snapshot_string(snapshot, i).size_bytes + 32;
  return bytes + (uint64_t)tsr_snapshot_frame_count(snapshot) * 2 * sizeof(tsr_frame);
}

static bool is_same(const mcp_cached *file, const char *path, const struct stat *now) {
  return file->snapshot && strcmp(file->path, path) == 0 && file->device == (uint64_t)now->st_dev &&
         file->inode == (uint64_t)now->st_ino && file->size_bytes == (uint64_t)now->st_size &&
         file->written_ns == cli_system_written_ns(now);
}

static void drop(mcp_cached *file) {
  tsr_study_free(file->study);
  tsr_snapshot_free(file->snapshot);
  free(file->path);
  *file = (mcp_cached){0};
}

static uint64_t all_bytes(const mcp_cache *cache) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < MCP_CACHE_FILES; i++) bytes += cache->files[i].held_bytes;
  return bytes;
}

/* The least recently used file, except those of this call; NULL if absent. */
static mcp_cached *oldest(mcp_cache *cache) {
  mcp_cached *found = NULL;
  for (size_t i = 0; i < MCP_CACHE_FILES; i++) {
    mcp_cached *file = &cache->files[i];
    if (file->snapshot && file->used != cache->call && (!found || file->used < found->used))
      found = file;
  }
  return found;
}

/* A free place. There is one: no call opens as many files as there are places. */
static mcp_cached *make_room(mcp_cache *cache) {
  for (size_t i = 0; i < MCP_CACHE_FILES; i++)
    if (!cache->files[i].snapshot) return &cache->files[i];
  mcp_cached *file = oldest(cache);
  if (file) drop(file);
  return file;
}

static int read_file(mcp_cached *place, const char *path, const struct stat *now,
                     const tsr_open_options *how, tsr_error *error) {
  tsr_snapshot *snapshot = NULL;
  char *name = strdup(path);
  if (!name) return fail(error, TSR_ERROR_MEMORY, tsr_status_text(TSR_ERROR_MEMORY));
  tsr_study *study = NULL;
  int status = tsr_snapshot_open(path, how, &snapshot, error);
  if (!status) status = tsr_study_new(snapshot, &study, error);
  if (status) {
    tsr_snapshot_free(snapshot);
    free(name);
    return status;
  }
  *place = (mcp_cached){.path = name,
                        .device = (uint64_t)now->st_dev,
                        .inode = (uint64_t)now->st_ino,
                        .size_bytes = (uint64_t)now->st_size,
                        .written_ns = cli_system_written_ns(now),
                        .snapshot = snapshot,
                        .study = study,
                        .held_bytes = held_bytes(snapshot)};
  return 0;
}

int mcp_cache_open(mcp_cache *cache, const char *path, const tsr_open_options *how, tsr_study **out,
                   tsr_error *error) {
  struct stat now;
  /* "-" is a file of that name here, or none. */
  if (stat(path, &now) != 0) return fail(error, TSR_ERROR_IO, strerror(errno));
  if (!S_ISREG(now.st_mode) || strcmp(path, "-") == 0)
    return fail(error, TSR_ERROR_IO, "not a regular file");
  mcp_cached *place = NULL;
  for (size_t i = 0; !place && i < MCP_CACHE_FILES; i++)
    if (is_same(&cache->files[i], path, &now)) place = &cache->files[i];
  if (!place) {
    place = make_room(cache);
    if (!place) return fail(error, TSR_ERROR_ARGUMENT, "too many files in one call");
    int status = read_file(place, path, &now, how, error);
    if (status) return status;
  }
  place->used = cache->call;
  for (mcp_cached *old; all_bytes(cache) > MCP_CACHE_BYTES && (old = oldest(cache));) drop(old);
  *out = place->study;
  return 0;
}

void mcp_cache_release(mcp_cache *cache) {
  for (size_t i = 0; i < MCP_CACHE_FILES; i++) drop(&cache->files[i]);
}
