/* Who is ended when too many are connected. Each visitor is one end of a socket pair; the other end reads
 * that it was shut down. */
#define _XOPEN_SOURCE 700

#include "../../cmd/serve/serve_crowd.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test_support.h"

enum { MOST = 128 };

typedef struct door {
  cli_crowd crowd;
  int inside[MOST], outside[MOST];
  size_t count;
} door;

static const unsigned char home[16] = {127, 0, 0, 1}, away[16] = {10, 0, 0, 7};

static size_t come(door *d, const unsigned char address[16], int64_t now_ms) {
  int pair[2];
  assert_true(d->count < MOST);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  d->inside[d->count] = pair[0];
  d->outside[d->count] = pair[1];
  cli_crowd_enter(&d->crowd, pair[0], address, now_ms);
  return d->count++;
}

static bool is_ended(const door *d, size_t who) {
  struct pollfd one = {.fd = d->outside[who], .events = POLLIN};
  return poll(&one, 1, 0) == 1;
}

static size_t ended_count(const door *d) {
  size_t count = 0;
  for (size_t i = 0; i < d->count; i++) count += is_ended(d, i);
  return count;
}

static void serve(door *d, size_t who, int64_t now_ms) {
  cli_crowd_ask(&d->crowd, d->inside[who], now_ms);
  cli_crowd_finish(&d->crowd, d->inside[who], now_ms);
}

static int setup(void **state) {
  static door d;
  d = (door){.crowd.lock = PTHREAD_MUTEX_INITIALIZER};
  *state = &d;
  return 0;
}

static int teardown(void **state) {
  door *d = *state;
  for (size_t i = 0; i < d->count; i++) {
    cli_crowd_leave(&d->crowd, d->inside[i]);
    close(d->inside[i]);
    close(d->outside[i]);
  }
  return d->crowd.count != 0;
}

static void test_nobody_goes_while_there_is_room(void **state) {
  door *d = *state;
  for (int i = 0; i < CLI_CROWD_OF_ADDRESS; i++) come(d, home, i);
  assert_int_equal(ended_count(d), 0);
}

static void test_the_longest_waiting_goes(void **state) {
  door *d = *state;
  for (int i = 0; i < CLI_CROWD_OF_ADDRESS + 3; i++) come(d, home, i);
  assert_int_equal(ended_count(d), 3);
  assert_true(is_ended(d, 0) && is_ended(d, 1) && is_ended(d, 2));
}

/* A request that has come but is not read yet looks like one that is owed. Those that were served and
 * whose end is not read yet go before it, though they were heard of later. */
static void test_the_served_go_before_those_that_wait(void **state) {
  door *d = *state;
  size_t waiting = come(d, home, 0);
  for (int i = 1; i < CLI_CROWD_OF_ADDRESS; i++) serve(d, come(d, home, i), 100 + i);
  for (int i = 1; i < CLI_CROWD_OF_ADDRESS; i++) {
    come(d, home, 1000 + i);
    assert_true(is_ended(d, (size_t)i));
  }
  assert_false(is_ended(d, waiting));
  come(d, home, 2000);
  assert_true(is_ended(d, waiting));
}

static void test_an_answer_is_finished_first(void **state) {
  door *d = *state;
  for (int i = 0; i < CLI_CROWD_OF_ADDRESS; i++)
    cli_crowd_ask(&d->crowd, d->inside[come(d, home, 0)], 0);
  size_t newcomer = come(d, home, 1);
  assert_true(is_ended(d, newcomer));
  assert_int_equal(ended_count(d), 1);
  come(d, home, CLI_CROWD_ANSWER_MS + 2); /* it owes a request, and still goes before them */
  assert_int_equal(ended_count(d), 2);
}

static void test_the_address_that_has_most(void **state) {
  door *d = *state;
  size_t other = come(d, away, 0);
  for (int i = 0; i < CLI_CROWD_OF_ADDRESS; i++) come(d, home, 1 + i);
  while (d->count < CLI_CROWD_MOST) come(d, away, 100);
  come(d, away, 200);
  assert_false(is_ended(d, other));
  assert_true(is_ended(d, other + 1));
}

static void test_patience_ends(void **state) {
  door *d = *state;
  size_t slow = come(d, home, 0), asked = come(d, home, 0);
  cli_crowd_ask(&d->crowd, d->inside[asked], 10);
  cli_crowd_sweep(&d->crowd, CLI_CROWD_PATIENCE_MS);
  assert_false(is_ended(d, slow));
  cli_crowd_sweep(&d->crowd, CLI_CROWD_PATIENCE_MS + 1);
  assert_true(is_ended(d, slow));
  assert_false(is_ended(d, asked));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_nobody_goes_while_there_is_room),
      TEST(test_the_longest_waiting_goes),
      TEST(test_the_served_go_before_those_that_wait),
      TEST(test_an_answer_is_finished_first),
      TEST(test_the_address_that_has_most),
      TEST(test_patience_ends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
