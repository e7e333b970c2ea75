/* A stand-in for NVIDIA's management library, which answers from a text file, for machines without a card.
 *
 * TESSERA_NVML_WORLD names the file. It is read again at each call, so that a test changes the world by replacing it. A line is a word and
 * values; words that begin with "card" belong to the card of the last line "card":
 *
 *   init STATUS                          what nvmlInit_v2 returns
 *   version TEXT
 *   processes v1|v2|v3|v3wide            the newest version of the lists of processes that this driver has; v3wide writes 32 bytes
 *   memory v1|v2                         ... and of the memory
 *   count N                              cards; without it, as many as are described
 *   card UUID TOTAL RESERVED FREE NAME
 *   card.parent N                        this one is a MIG instance of card N (counted from 0), and none of NVML's list
 *   card.mig                             this one is partitioned
 *   card.memory STATUS                   what the calls about its memory return
 *   card.processes STATUS
 *   card.process PID BYTES               computes; BYTES may be "-": not available
 *   card.graphics PID BYTES              draws
 *   card.mps PID BYTES                   computes by way of MPS
 *   name PID PATH                        of a process
 *   log FILE                             each call's name is appended there
 *   delay MICROSECONDS                   each call works so long, as a driver does
 *
 * A handle is the number of a card, from 1. The structs are those of NVML's documentation; sizes are what matters. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CARDS = 32, ROWS = 600, TEXT = 96 };

struct row {
  unsigned pid;
  unsigned long long bytes;
  char list; /* c, g or m */
};

struct card {
  char uuid[TEXT], name[TEXT];
  unsigned long long total, reserved, free;
  int parent, is_partitioned, memory, processes;
  int row_count;
  struct row rows[ROWS];
};

struct world {
  int init, count, lists, is_wide, memory, delay;
  int card_count, name_count;
  unsigned pids[ROWS];
  char version[TEXT], names[ROWS][TEXT], log[256];
  struct card cards[CARDS];
};

static void read_line(struct world *world, const char *line) {
  char word[32] = "", text[TEXT] = "";
  int used = 0, value = 0;
  if (sscanf(line, "%31s %n", word, &used) < 1) return;
  const char *rest = line + used;
  struct card *card = world->card_count ? &world->cards[world->card_count - 1] : NULL;
  unsigned pid = 0;
  if (!strcmp(word, "init"))
    world->init = atoi(rest);
  else if (!strcmp(word, "version"))
    sscanf(rest, "%95s", world->version);
  else if (!strcmp(word, "processes")) {
    world->lists = atoi(rest + 1);
    world->is_wide = strstr(rest, "wide") != NULL;
  } else if (!strcmp(word, "memory"))
    world->memory = atoi(rest + 1);
  else if (!strcmp(word, "count"))
    world->count = atoi(rest);
  else if (!strcmp(word, "delay"))
    world->delay = atoi(rest);
  else if (!strcmp(word, "log"))
    sscanf(rest, "%255s", world->log);
  else if (!strcmp(word, "name") && world->name_count < ROWS) {
    if (sscanf(rest, "%u %95[^\n]", &pid, text) == 2) {
      world->pids[world->name_count] = pid;
      memcpy(world->names[world->name_count++], text, TEXT);
    }
  } else if (!strcmp(word, "card") && world->card_count < CARDS) {
    card = &world->cards[world->card_count++];
    card->parent = -1;
    sscanf(rest, "%95s %llu %llu %llu %95[^\n]", card->uuid, &card->total, &card->reserved,
           &card->free, card->name);
  } else if (card != NULL && sscanf(rest, "%d", &value) >= 0) {
    if (!strcmp(word, "card.parent"))
      card->parent = value;
    else if (!strcmp(word, "card.mig"))
      card->is_partitioned = 1;
    else if (!strcmp(word, "card.memory"))
      card->memory = value;
    else if (!strcmp(word, "card.processes"))
      card->processes = value;
    else if (card->row_count < ROWS && sscanf(rest, "%u %95s", &pid, text) == 2) {
      struct row *row = &card->rows[card->row_count++];
      row->pid = pid;
      row->bytes = text[0] == '-' ? ~0ULL : strtoull(text, NULL, 10);
      row->list = word[5] == 'p' ? 'c' : word[5];
    }
  } else if (card != NULL && !strcmp(word, "card.mig"))
    card->is_partitioned = 1;
}

/* The world now; `call` is what asks. A static buffer is enough: the tests hold the ledger's lock, or ask from one thread. */
static struct world *look(const char *call) {
  static __thread struct world world;
  memset(&world, 0, sizeof world);
  world.lists = 3;
  world.memory = 2;
  world.count = -1;
  strcpy(world.version, "12.570.86");
  const char *path = getenv("TESSERA_NVML_WORLD");
  FILE *file = path ? fopen(path, "r") : NULL;
  if (file == NULL) {
    world.init = 9;
    return &world;
  }
  char line[512];
  while (fgets(line, sizeof line, file) != NULL) read_line(&world, line);
  fclose(file);
  if (world.log[0] && (file = fopen(world.log, "a")) != NULL) {
    fprintf(file, "%s\n", call);
    fclose(file);
  }
  struct timespec now, end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_nsec += world.delay * 1000L;
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while (world.delay && (now.tv_sec - end.tv_sec) * 1000000000L + now.tv_nsec - end.tv_nsec < 0);
  return &world;
}

static struct card *card_of(struct world *world, void *handle) {
  uintptr_t number = (uintptr_t)handle;
  return number >= 1 && number <= (uintptr_t)world->card_count ? &world->cards[number - 1] : NULL;
}

static int copy(char *to, unsigned size, const char *text) {
  if (strlen(text) + 1 > size) return 7;
  strcpy(to, text);
  return 0;
}

int nvmlInit_v2(void) {
  return look(__func__)->init;
}

const char *nvmlErrorString(int status) {
  return status == 9   ? "Driver Not Loaded"
         : status == 3 ? "Not Supported"
         : status == 4 ? "Insufficient Permissions"
                       : "Unknown Error";
}

int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
  return copy(text, size, look(__func__)->version);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  struct world *world = look(__func__);
  *count = 0;
  for (int i = 0; i < world->card_count; i++) *count += world->cards[i].parent < 0;
  if (world->count >= 0) *count = (unsigned)world->count;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  struct world *world = look(__func__);
  for (int i = 0; i < world->card_count; i++) {
    if (world->cards[i].parent >= 0) continue;
    if (index-- == 0) {
      *handle = (void *)(uintptr_t)(i + 1);
      return 0;
    }
  }
  return 2;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  struct world *world = look(__func__);
  for (int i = 0; i < world->card_count; i++) {
    if (strcmp(world->cards[i].uuid, uuid)) continue;
    *handle = (void *)(uintptr_t)(i + 1);
    return 0;
  }
  return 6;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  struct card *card = card_of(look(__func__), handle);
  return card == NULL ? 2 : copy(text, size, card->uuid);
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  struct card *card = card_of(look(__func__), handle);
  return card == NULL ? 2 : copy(text, size, card->name);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
  struct card *card = card_of(look(__func__), handle);
  if (card == NULL || card->parent >= 0) return 3;
  *now = *later = (unsigned)card->is_partitioned;
  return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
  (void)handle;
  *count = 7;
  return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance) {
  struct world *world = look(__func__);
  for (int i = 0; i < world->card_count; i++) {
    if (world->cards[i].parent < 0 || (uintptr_t)world->cards[i].parent + 1 != (uintptr_t)handle)
      continue;
    if (index-- == 0) {
      *instance = (void *)(uintptr_t)(i + 1);
      return 0;
    }
  }
  return 6;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *told) {
  struct card *card = card_of(look(__func__), handle);
  if (card == NULL) return 2;
  if (card->memory) return card->memory;
  told[0] = card->total;
  told[1] = card->free;
  told[2] = card->total - card->free; /* here, the driver's own memory is used, too */
  return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, void *told) {
  struct world *world = look(__func__);
  struct card *card = card_of(world, handle);
  unsigned version = 0;
  memcpy(&version, told, sizeof version);
  if (world->memory < 2) return 13;
  if (version != (40U | 2U << 24)) return 25;
  if (card == NULL) return 2;
  if (card->memory) return card->memory;
  unsigned long long values[4] = {card->total, card->reserved, card->free,
                                  card->total - card->free - card->reserved};
  memcpy((char *)told + 8, values, sizeof values);
  return 0;
}

/* The list `list` as `version` of the call has it, in entries of 16, 24 or 32 bytes. */
static int list_processes(const char *call, int version, char list, void *handle, unsigned *count,
                          char *to) {
  struct world *world = look(call);
  struct card *card = card_of(world, handle);
  if (version > world->lists) return 13;
  if (card == NULL) return 2;
  if (card->processes) return card->processes;
  unsigned wanted = 0, size = version == 1 ? 16 : version == 3 && world->is_wide ? 32 : 24;
  for (int i = 0; i < card->row_count; i++) wanted += card->rows[i].list == list;
  if (wanted > *count) {
    *count = wanted;
    return 7;
  }
  for (int i = 0; i < card->row_count; i++) {
    if (card->rows[i].list != list) continue;
    memset(to, 0, size);
    memcpy(to, &card->rows[i].pid, 4);
    memcpy(to + 8, &card->rows[i].bytes, 8);
    if (size > 16) memset(to + 16, 0xff, 8); /* no MIG instance */
    to += size;
  }
  *count = wanted;
  return 0;
}

#define LISTS(NAME, LIST)                                           \
  int NAME(void *handle, unsigned *count, char *to) {               \
    return list_processes(#NAME, 1, LIST, handle, count, to);       \
  }                                                                 \
  int NAME##_v2(void *handle, unsigned *count, char *to) {          \
    return list_processes(#NAME "_v2", 2, LIST, handle, count, to); \
  }                                                                 \
  int NAME##_v3(void *handle, unsigned *count, char *to) {          \
    return list_processes(#NAME "_v3", 3, LIST, handle, count, to); \
  }

LISTS(nvmlDeviceGetComputeRunningProcesses, 'c')
LISTS(nvmlDeviceGetGraphicsRunningProcesses, 'g')
LISTS(nvmlDeviceGetMPSComputeRunningProcesses, 'm')

int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size) {
  struct world *world = look(__func__);
  for (int i = 0; i < world->name_count; i++)
    if (world->pids[i] == pid) return copy(text, size, world->names[i]);
  return 6;
}
