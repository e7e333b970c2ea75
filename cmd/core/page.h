/* page.h - a page of one or more snapshots: what view, serve, and other commands' pages share. */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include <tessera/unstable/view.h>

#include "session.h"

/* What a page is made of; a zeroed one is released too. */
typedef struct cli_page {
  tsr_view **views;       /* by input */
  tsr_view_cut **cuts;    /* by input, then by device of its view */
  tsr_page_input *inputs; /* made of both */
  size_t count;
  tsr_page *page;
} cli_page;

/* What a page is made from. */
typedef struct cli_page_from {
  const cli_input *inputs; /* must outlive the page */
  size_t count;
  const tsr_rules *rules; /* or NULL; must outlive the page */
  const tsr_query *query;
  uint64_t most_allocations; /* listed individually, of all devices together; 0: the default */
  tsr_page_options options;
  const char *key; /* of the metadata to group by, or NULL */
} cli_page_from;

/* Make a page: if it is too large, fewer allocations are listed individually, until it fits.
 * Returns as a cli_command_fn does; `*page` is released by the function below. */
int cli_page_make(cli_session *session, const cli_page_from *from, cli_page *page);
void cli_page_release(cli_page *page);

/* Make a page of one snapshot and write it to `path`, explaining a failure to write there. */
int cli_page_save(cli_session *session, const cli_page_from *from, const char *path);

/* Write the page of an answer about many ranks to the file of --html, if it is given. Likewise. */
int cli_page_save_ranks(cli_session *session, const tsr_answer *answer);

/* Refuse the name of a file that is not for HTML, such as snapshot.pickle. Returns 0 or a usage error. */
int cli_page_check_name(const cli_options *options, const char *path);

/* Explain that a file without events and segments has nothing to show: an empty page would only puzzle its reader. Returns a
 * negative status. */
int cli_page_refuse_empty(cli_session *session);

/* Read the options of view and serve; the caller frees `*rules`, which may be NULL. Returns 0, a status, or a usage error. */
int cli_page_read_options(cli_session *session, tsr_page_options *how, tsr_rules **rules);

/* The grouping of the page that shows what a profile is grouped by. */
const char *cli_page_grouping(tsr_profile_by by);

typedef int cli_page_fn(cli_session *session, const cli_page *page, void *context);

/* Open the operands, make a page of them from the options, and show it. Returns as a cli_command_fn
 * does. */
int cli_with_page(cli_session *session, bool is_served, cli_page_fn *show, void *context);

#endif
