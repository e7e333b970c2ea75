/* ranks.c - see ranks.h.
 *
 * All ranks read the same command line and mostly the same files, so most mistakes are found by all of them, and a launcher
 * ends every process as soon as the first one exits with an error. Without an agreement a user would see a message once for each
 * rank, or not at all. So standard error of ranks other than 0 goes to a temporary file until all ranks have agreed to
 * continue, or on who reports the failure. */
#define _POSIX_C_SOURCE 200809L

#include "ranks.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "message.h"

struct cli_ranks {
  tsr_processes *processes;
  int32_t *all; /* room for a number from each rank */
  FILE *held;   /* messages held back, or NULL */
  int handle;   /* a duplicate of standard error while messages are held back */
};

/* A number that a launcher has put into the environment; -1 if absent. */
static long launched(const char *name) {
  const char *text = getenv(name);
  char *end = NULL;
  long number = text ? strtol(text, &end, 10) : -1;
  return text && *text && !*end && number >= 0 ? number : -1;
}

/* ---- messages ---- */

/* Messages that cannot be held back are printed. */
static void hold(cli_ranks *ranks) {
  ranks->held = tmpfile();
  if (!ranks->held) return;
  (void)fflush(stderr);
  ranks->handle = dup(STDERR_FILENO);
  if (ranks->handle >= 0 && dup2(fileno(ranks->held), STDERR_FILENO) >= 0) return;
  if (ranks->handle >= 0) (void)close(ranks->handle);
  (void)fclose(ranks->held);
  ranks->held = NULL;
}

/* Print what was held back, or drop it. */
static void release(cli_ranks *ranks, bool prints) {
  char piece[4096];
  size_t length;
  if (!ranks->held) return;
  (void)fflush(stderr);
  (void)dup2(ranks->handle, STDERR_FILENO);
  (void)close(ranks->handle);
  rewind(ranks->held);
  while (prints && (length = fread(piece, 1, sizeof piece, ranks->held)) > 0)
    (void)fwrite(piece, 1, length, stderr);
  (void)fclose(ranks->held);
  ranks->held = NULL;
}

/* ---- joining ---- */

int cli_ranks_join(const cli_session *session, cli_ranks **out) {
  long open_rank = launched("OMPI_COMM_WORLD_RANK"), mpich_rank = launched("PMI_RANK");
  long size = launched(open_rank >= 0 ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE");
  const char *name = session->options->command->about.name;
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  *out = NULL;
  if (size < 1 || (open_rank < 0 && mpich_rank < 0)) return 0;
  cli_ranks *ranks = calloc(1, sizeof *ranks);
  tsr_launcher launcher = open_rank >= 0 ? TSR_LAUNCHER_OPEN_MPI : TSR_LAUNCHER_MPICH;
  int status =
      ranks ? tsr_processes_new(launcher, &ranks->processes, &error) : (int)TSR_ERROR_MEMORY;
  if (status == 0) {
    ranks->all = calloc(tsr_processes_count(ranks->processes), sizeof *ranks->all);
    if (!ranks->all) status = TSR_ERROR_MEMORY;
  }
  if (status) { /* all ranks fail alike; the first one reports it */
    if (open_rank <= 0 && mpich_rank <= 0)
      cli_say(name, "%s", *error.message ? error.message : tsr_status_text((tsr_status)status));
    cli_ranks_leave(ranks);
    return status == TSR_ERROR_UNSUPPORTED ? CLI_INPUT : CLI_FAULT;
  }
  if (tsr_processes_rank(ranks->processes) > 0) hold(ranks);
  *out = ranks;
  return 0;
}

uint32_t cli_ranks_rank(const cli_ranks *ranks) {
  return ranks ? tsr_processes_rank(ranks->processes) : 0;
}

uint32_t cli_ranks_count(const cli_ranks *ranks) {
  return ranks ? tsr_processes_count(ranks->processes) : 1;
}

tsr_processes *cli_ranks_processes(const cli_ranks *ranks) {
  return ranks ? ranks->processes : NULL;
}

/* ---- agreeing ---- */

/* The first rank whose number is not 0, or their count. */
static uint32_t first_of(const cli_ranks *ranks) {
  uint32_t count = cli_ranks_count(ranks), first = 0;
  while (first < count && !ranks->all[first]) first++;
  return first;
}

int cli_ranks_agree(cli_ranks *ranks, const cli_session *session, int status) {
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  if (!ranks) return status;
  uint32_t rank = cli_ranks_rank(ranks);
  assert(rank < cli_ranks_count(ranks));
  bool is_shared = tsr_processes_share(ranks->processes, status, ranks->all, &error) == 0;
  uint32_t first = is_shared ? first_of(ranks) : rank;
  bool fails = first < cli_ranks_count(ranks);
  release(ranks, first == rank);
  if (!fails) return 0;
  if (first == rank && status < 0) status = cli_explain(session, status);
  (void)fflush(stderr);
  if (!is_shared) return CLI_FAULT;
  /* The others end once this rank has printed why, with its exit status. */
  if (tsr_processes_share(ranks->processes, status, ranks->all, &error)) return CLI_FAULT;
  assert(ranks->all[first] > 0);
  return ranks->all[first];
}

void cli_ranks_leave(cli_ranks *ranks) {
  if (!ranks) return;
  release(ranks, true);
  tsr_processes_free(ranks->processes);
  free(ranks->all);
  free(ranks);
}
