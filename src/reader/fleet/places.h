/* places.h - from what a user names - folders, patterns, lists, files - to the files of ranks. */
#ifndef TSR_FLEET_PLACES_H
#define TSR_FLEET_PLACES_H

#include "base/error.h"
#include "base/vector.h"

typedef TSR__VECTOR(char *) tsr__path_list;

/* Append the files that `text` names:
 *   a folder   what is in it and in its folders that may be a snapshot by its name; links to folders are not followed
 *   a pattern  of the shell, if no file has that name
 *   @FILE      a list: a path on each line, relative to the list; empty lines and those with '#' do not count
 *   a file     itself
 * Paths are the list's, for tsr__path_list_release. Fails with TSR_ERROR_IO, with TSR_ERROR_LIMIT for more files or levels than
 * anyone has, with TSR_ERROR_UNSUPPORTED for an address of the web, or with TSR_ERROR_MEMORY; the message does not name `text`. */
int tsr__places_find(const char *text, tsr__path_list *out, tsr_error *error);
/* Sort, and leave each path once. */
void tsr__path_list_sort(tsr__path_list *list);
void tsr__path_list_release(tsr__path_list *list);

/* The length of the folder in a path, with its slash; 0 for a path without one. */
size_t tsr__folder_bytes(const char *path);

/* Whether a file may be a snapshot by its name, and is no sidecar of one. */
bool tsr__is_snapshot_name(const char *name);

#endif
