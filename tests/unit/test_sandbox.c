/* What a process can still do in a sandbox. Each sandbox is that of a child, because nothing of it can be taken back. */
#define _GNU_SOURCE

#include "../../cmd/core/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_support.h"

/* A folder with `inside`, where the sandbox may write, and `outside`, where it may not. Each has a file `old`. */
static char root[] = "/tmp/tessera-sandbox-XXXXXX";

static void put(const char *name) {
  int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, "old", 3) != 3 || close(file)) abort();
}

static int set_up(void **state) {
  (void)state;
  if (!mkdtemp(root) || chdir(root)) return -1;
  if (mkdir("inside", 0700) || mkdir("outside", 0700)) return -1;
  put("inside/old");
  put("outside/old");
  return symlink("../outside/old", "inside/link");
}

static int tear_down(void **state) {
  char command[sizeof root + 16];
  (void)state;
  (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
  return chdir("/") || system(command);
}

/* ---- what is tried: 0, or the errno with which it failed ---- */

static int reason(long result) {
  return result < 0 ? errno : 0;
}

static int try_open(const char *path, int flags) {
  int file = open(path, flags | O_CLOEXEC, 0600), why = reason(file);
  if (file >= 0) (void)close(file);
  return why;
}

static int try_connect(void) {
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  where.sin_port = htons(1);
  int handle = socket(AF_INET, SOCK_STREAM, 0);
  if (handle < 0) return errno;
  int why = reason(connect(handle, (struct sockaddr *)&where, sizeof where));
  (void)close(handle);
  return why;
}

static int try_execute(void) {
  char name[] = "false", *const words[] = {name, NULL};
  return reason(execv("/bin/false", words)); /* fails here, or ends with status 1 */
}

/* ---- checks in a child: the first that fails is its exit status ---- */

enum { PASSED = 0 };

#define CHECK(is_true)                                           \
  do {                                                           \
    if (!(is_true)) {                                            \
      fprintf(stderr, "# line %d: errno %d\n", __LINE__, errno); \
      _exit(1);                                                  \
    }                                                            \
  } while (0)

static void run_child(int (*check)(void)) {
  int status;
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(check());
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status)); /* a denied call is an error, not an end */
  assert_int_equal(WEXITSTATUS(status), PASSED);
}

/* ---- files ---- */

static int write_inside(void) {
  const cli_place inside = {.path = "inside"};
  CHECK(cli_sandbox_files(&inside, 1, true));
  CHECK(try_open("inside/new", O_WRONLY | O_CREAT | O_EXCL) == 0);
  CHECK(try_open("inside/old", O_WRONLY) == 0);
  CHECK(rename("inside/new", "inside/old") == 0);
  CHECK(unlink("inside/old") == 0);
  CHECK(mkdir("inside/folder", 0700) < 0 && errno == EACCES);
  CHECK(try_open("outside/old", O_RDONLY) == 0);
  CHECK(try_open("/dev/null", O_WRONLY) == EACCES);
  return PASSED;
}

static int write_outside(void) {
  const cli_place inside = {.path = "inside"};
  put("inside/old");
  CHECK(cli_sandbox_files(&inside, 1, true));
  CHECK(try_open("outside/old", O_WRONLY) == EACCES);
  CHECK(try_open("outside/old", O_RDWR) == EACCES);
  CHECK(try_open("outside/new", O_WRONLY | O_CREAT) == EACCES);
  CHECK(try_open("inside/../outside/new", O_WRONLY | O_CREAT) == EACCES);
  CHECK(try_open("inside/link", O_WRONLY) == EACCES);
  CHECK(unlink("outside/old") < 0 && errno == EACCES);
  CHECK(rename("inside/old", "outside/old") < 0 && (errno == EACCES || errno == EXDEV));
  CHECK(rename("outside/old", "inside/old") < 0 && (errno == EACCES || errno == EXDEV));
  CHECK(link("outside/old", "inside/other") < 0 && (errno == EACCES || errno == EXDEV));
  CHECK(symlink("x", "inside/second") < 0 && errno == EACCES);
  CHECK(mkdir("outside/folder", 0700) < 0 && errno == EACCES);
  if (cli_sandbox_landlock() >= 3) CHECK(truncate("outside/old", 0) < 0 && errno == EACCES);
  if (cli_sandbox_landlock() >= 4) CHECK(try_connect() == EACCES);
  CHECK(try_execute() == EACCES);
  return PASSED;
}

static int make_folders(void) {
  const cli_place inside = {.path = "inside", .makes_folders = true};
  CHECK(cli_sandbox_files(&inside, 1, true));
  CHECK(mkdir("inside/folder", 0700) == 0);
  CHECK(try_open("inside/folder/new", O_WRONLY | O_CREAT) == 0);
  CHECK(unlink("inside/folder/new") == 0 && rmdir("inside/folder") == 0);
  CHECK(mkdir("outside/folder", 0700) < 0 && errno == EACCES);
  return PASSED;
}

/* A place that is not there allows nothing, and leaves the others. */
static int write_device(void) {
  const cli_place places[] = {{.path = "absent"}, {.path = "/dev/null"}};
  CHECK(cli_sandbox_files(places, 2, true));
  CHECK(try_open("/dev/null", O_WRONLY | O_TRUNC) == 0);
  CHECK(try_open("absent", O_WRONLY | O_CREAT) == EACCES);
  CHECK(try_open("/dev/zero", O_WRONLY) == EACCES);
  return PASSED;
}

static void *try_in_thread(void *out) {
  *(int *)out = try_open("outside/old", O_RDONLY);
  return NULL;
}

/* Twice, as serve does; threads that start later are in both. */
static int read_nothing(void) {
  char byte;
  int file = open("outside/old", O_RDONLY), of_thread = -1;
  pthread_t thread;
  CHECK(cli_sandbox_files(NULL, 0, true));
  CHECK(try_open("outside/old", O_RDONLY) == 0);
  CHECK(cli_sandbox_files(NULL, 0, false));
  CHECK(try_open("outside/old", O_RDONLY) == EACCES);
  CHECK(try_open("outside", O_RDONLY | O_DIRECTORY) == EACCES);
  CHECK(try_open("/etc/passwd", O_RDONLY) == EACCES);
  CHECK(read(file, &byte, 1) == 1);
  CHECK(pthread_create(&thread, NULL, try_in_thread, &of_thread) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && of_thread == EACCES);
  return PASSED;
}

/* ---- system calls ---- */

static int make_no_calls(void) {
  const char character = 'x';
  int file = open("inside/link", O_RDONLY);
  CHECK(cli_sandbox_calls(&(cli_sandbox_use){.accepts = false}));
  CHECK(try_connect() == EPERM);
  CHECK(try_execute() == EPERM);
  CHECK(chmod("outside/old", 0777) < 0 && errno == EPERM);
  CHECK(fchmod(file, 0777) < 0 && errno == EPERM);
  CHECK(fchown(file, 1, 1) < 0 && errno == EPERM);
  CHECK(futimens(file, NULL) < 0 && errno == EPERM);
  CHECK(listen(file, 1) < 0 && errno == EPERM);
  CHECK(ioctl(file, TIOCSTI, &character) < 0 && errno == EPERM);
  CHECK(kill(getppid(), 0) < 0 && errno == EPERM);
  CHECK(syscall(SYS_tgkill, getppid(), getppid(), 0) < 0 && errno == EPERM);
  return PASSED;
}

static void note_signal(int signal) {
  (void)signal;
}

/* What commands, the C library and sanitizers need. */
static int make_calls(void) {
  int of_thread = -1, size;
  pthread_t thread;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  CHECK(bind(listener, (struct sockaddr *)&where, sizeof where) == 0);
  int file = open("inside/old", O_RDWR);
  CHECK(cli_sandbox_calls(&(cli_sandbox_use){.accepts = true, .writes = true}));
  CHECK(signal(SIGUSR1, note_signal) != SIG_ERR && raise(SIGUSR1) == 0);
  CHECK(listen(listener, 1) == 0);
  CHECK(accept(listener, NULL, NULL) < 0 && errno == EAGAIN);
  CHECK(fchmod(file, 0600) == 0);
  CHECK(ioctl(file, FIONREAD, &size) == 0);
  CHECK(pthread_create(&thread, NULL, try_in_thread, &of_thread) == 0);
  CHECK(pthread_join(thread, NULL) == 0 && of_thread == 0);
  CHECK(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
  return PASSED;
}

#define TEST_OF(name)                     \
  static void test_##name(void **state) { \
    (void)state;                          \
    run_child(name);                      \
  }

TEST_OF(write_inside)
TEST_OF(write_outside)
TEST_OF(make_folders)
TEST_OF(write_device)
TEST_OF(read_nothing)
TEST_OF(make_no_calls)
TEST_OF(make_calls)

/* Without a part of the kernel, only that nothing is claimed. */
static void test_what_the_kernel_has(void **state) {
  (void)state;
  if (cli_sandbox_landlock() == 0) assert_false(cli_sandbox_files(NULL, 0, true));
  if (!cli_sandbox_has_seccomp())
    assert_false(cli_sandbox_calls(&(cli_sandbox_use){.accepts = false}));
}

static const struct CMUnitTest of_kernel[] = {cmocka_unit_test(test_what_the_kernel_has)};
static const struct CMUnitTest of_landlock[] = {
    cmocka_unit_test(test_write_inside), cmocka_unit_test(test_write_outside),
    cmocka_unit_test(test_make_folders), cmocka_unit_test(test_write_device),
    cmocka_unit_test(test_read_nothing)};
static const struct CMUnitTest of_seccomp[] = {cmocka_unit_test(test_make_no_calls),
                                               cmocka_unit_test(test_make_calls)};

enum { MOST = 8 };

static size_t add(struct CMUnitTest *tests, size_t count, const struct CMUnitTest *more,
                  size_t more_bytes) {
  memcpy(tests + count, more, more_bytes);
  return count + more_bytes / sizeof *more;
}

int main(void) {
  struct CMUnitTest tests[MOST];
  size_t count = add(tests, 0, of_kernel, sizeof of_kernel);
  if (cli_sandbox_landlock())
    count = add(tests, count, of_landlock, sizeof of_landlock);
  else
    puts("# SKIP files: this kernel has no Landlock");
  if (cli_sandbox_has_seccomp())
    count = add(tests, count, of_seccomp, sizeof of_seccomp);
  else
    puts("# SKIP system calls: no seccomp for this kernel and processor");
  fflush(stdout);
  return _cmocka_run_group_tests("sandbox", tests, count, set_up, tear_down);
}
