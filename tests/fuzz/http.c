/* What browsers, sites and programs send to `tessera serve`: any bytes. "TOKEN" in them stands for the secret of the address, so that
 * a request without it is refused, whatever it looks like. */
#define _GNU_SOURCE /* memfd_create, memmem */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "folder.h"
#include "program.h"
#include "serve/serve_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char snapshot[] =
    "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": "
    "512, "
    "\"frames\": [{\"name\": \"forward\", \"filename\": \"a.py\", \"line\": 1}]}, {\"action\": "
    "\"free_completed\", \"addr\": 4096, \"size\": 512, \"frames\": []}]]}";
static const char word[] = "TOKEN";

enum { MOST_SENT = 1 << 16, WORD = sizeof word - 1 };

static struct sockaddr_in address;
static char token[CLI_TOKEN_DIGITS + 1];

static void *run_server(void *context) {
  static char name[] = "tessera", serve[] = "serve", quiet[] = "--quiet", file[] = "s.json";
  char *words[] = {name, serve, quiet, file, NULL};
  (void)context;
  (void)cli_program(4, words, false);
  require(false, "nothing ends the server");
  return NULL;
}

/* Wait for "http://127.0.0.1:PORT/TOKEN/". */
static void find_server(int printed) {
  const struct timespec pause = {.tv_nsec = 10000000};
  unsigned port = 0;
  for (int i = 0; i < 3000; i++) {
    char text[128] = "";
    if (pread(printed, text, sizeof text - 1, 0) > 0 &&
        sscanf(text, "http://127.0.0.1:%u/%32[0-9a-f]/\n", &port, token) == 2)
      break;
    (void)nanosleep(&pause, NULL);
  }
  require(port != 0, "an address");
  address = (struct sockaddr_in){.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Its thread ends with the process. */
static void start(void) {
  pthread_t thread;
  fuzz_put_aside("s.json", snapshot, sizeof snapshot - 1);
  fuzz_program *program = fuzz_program_once();
  fuzz_program_begin(program, "", 0);
  require(!pthread_create(&thread, NULL, run_server, NULL), "a thread");
  (void)pthread_detach(thread);
  find_server(program->output);
  fuzz_program_end(program, true);
}

/* The bytes to send; whether the secret is among them. */
static size_t put_token(const uint8_t *data, size_t size, char *out, bool *has_token) {
  size_t used = 0;
  *has_token = false;
  for (size_t i = 0; i < size && used + CLI_TOKEN_DIGITS < MOST_SENT;) {
    if (size - i >= WORD && memcmp(data + i, word, WORD) == 0) {
      memcpy(out + used, token, CLI_TOKEN_DIGITS);
      used += CLI_TOKEN_DIGITS;
      i += WORD;
      *has_token = true;
    } else {
      out[used++] = (char)data[i++];
    }
  }
  return used;
}

/* Whether there is more to read, soon. A connection that the client will write no more to may stay open. */
static bool has_more(int handle, size_t used) {
  enum { FIRST_MS = 50, NEXT_MS = 10 };
  struct pollfd wait = {.fd = handle, .events = POLLIN};
  return poll(&wait, 1, used ? NEXT_MS : FIRST_MS) > 0;
}

/* Send all of it and no more, and read what comes of it. */
static size_t talk(const char *sent, size_t size, char *answer, size_t room) {
  const struct linger at_once = {.l_onoff = 1}; /* no port waits for stray packets */
  size_t used = 0;
  int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  require(handle >= 0, "a socket");
  (void)setsockopt(handle, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  require(!connect(handle, (const struct sockaddr *)&address, sizeof address),
          "the server still listens");
  (void)send(handle, sent, size, MSG_NOSIGNAL);
  (void)shutdown(handle, SHUT_WR);
  while (used < room && has_more(handle, used)) {
    ssize_t got = recv(handle, answer + used, room - used, 0);
    if (got <= 0) break; /* the end, or refused with bytes unread */
    used += (size_t)got;
  }
  (void)close(handle);
  return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char sent[MOST_SENT], answer[1 << 21];
  bool has_token;
  if (!token[0]) start();
  size_t length = put_token(data, size, sent, &has_token);
  size_t got = talk(sent, length, answer, sizeof answer);
  if (!has_token) require(!memmem(answer, got, " 200 ", 5), "no page without the secret");
  require(!got || (got > 9 && memcmp(answer, "HTTP/1.", 7) == 0), "an answer in HTTP, or none");
  return 0;
}
