/* sandbox_linux.c - see sandbox.h: Landlock for files, seccomp for system calls. docs/decisions/066-confinement.md
 *
 * Landlock knows paths: a set of rules lists what may be done below a folder, and all else that the set handles is denied. It
 * does not know a file's name before the file is there, so an output is allowed by its folder (output.c). It does not know
 * permissions, owners, times, attributes and most of the network; a filter of system calls does, which in turn knows no paths.
 *
 * The filter lists what is denied, not what is allowed: which calls a C library makes changes with its version, and a command
 * that fails on a new system because of its confinement would be worse than none. A denied call fails with EPERM, so that
 * what a mistake here denies is a message and not a death without one. The program of the filter, an instruction a line:
 *
 *   the processor's other system calls (32-bit programs, x32)        fail
 *   ioctl of TIOCSTI or TIOCLINUX, tgkill of another process         fail
 *   a call of the list                                               fails
 *   any other                                                        is made
 *
 * Both are asked for by number: C libraries have no functions for them, and headers may be older than the kernel. */
#define _GNU_SOURCE

#include "sandbox.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef O_PATH
#define O_PATH 010000000
#endif
#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#endif

static bool forgo_privileges(void) {
  return prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L) == 0;
}

/* ---- Landlock ---- */

/* The same numbers on all processors. */
enum { CALL_CREATE_RULESET = 444, CALL_ADD_RULE = 445, CALL_RESTRICT_SELF = 446 };
enum { GET_VERSION = 1, RULE_PATH_BENEATH = 1 };

/* Rights, as linux/landlock.h numbers them, and the version that brought them. */
enum {
  EXECUTE = 1 << 0,
  WRITE_FILE = 1 << 1,
  READ_FILE = 1 << 2,
  READ_DIR = 1 << 3,
  REMOVE_DIR = 1 << 4,
  REMOVE_FILE = 1 << 5,
  MAKE_CHAR = 1 << 6,
  MAKE_DIR = 1 << 7,
  MAKE_REG = 1 << 8,
  MAKE_SOCK = 1 << 9,
  MAKE_FIFO = 1 << 10,
  MAKE_BLOCK = 1 << 11,
  MAKE_SYM = 1 << 12,
  TRUNCATE = 1 << 14,  /* 3 */
  IOCTL_DEV = 1 << 15, /* 5 */
};
enum {
  CHANGES = WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR | MAKE_DIR | MAKE_REG | MAKE_SOCK |
            MAKE_FIFO | MAKE_BLOCK | MAKE_SYM | TRUNCATE | IOCTL_DEV,
  TO_FILE = WRITE_FILE | TRUNCATE | IOCTL_DEV,
  TO_FOLDER = WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE,
};
enum { BIND_TCP = 1, CONNECT_TCP = 2 };       /* 4 */
enum { TO_ABSTRACT_SOCKETS = 1, SIGNAL = 2 }; /* 6 */

typedef struct ruleset {
  uint64_t files, network, scopes; /* a kernel of version 1 has the first, of 4 two, of 6 all */
} ruleset;

/* As the kernel has it, which packs the second member: the size is not passed, so padding does no harm. */
typedef struct path_beneath {
  uint64_t allowed;
  int32_t folder;
} path_beneath;
static_assert(offsetof(path_beneath, folder) == 8, "as the kernel has it");

unsigned cli_sandbox_landlock(void) {
  long version = syscall(CALL_CREATE_RULESET, NULL, (size_t)0, (unsigned)GET_VERSION);
  return version < 0 ? 0 : (unsigned)version;
}

/* What a kernel of this version knows of `rights`. */
static uint64_t known(uint64_t rights, unsigned version) {
  if (version < 5) rights &= ~(uint64_t)IOCTL_DEV;
  if (version < 3) rights &= ~(uint64_t)TRUNCATE;
  return rights;
}

static size_t ruleset_bytes(unsigned version) {
  return version < 4   ? offsetof(ruleset, network)
         : version < 6 ? offsetof(ruleset, scopes)
                       : sizeof(ruleset);
}

/* A place that cannot be opened cannot be written either, with a message of its own. Pipes are refused here, and need no rule. */
static void allow(int rules, const cli_place *place, unsigned version) {
  struct stat found;
  path_beneath rule = {.folder = open(place->path, O_PATH | O_CLOEXEC)};
  if (rule.folder < 0) return;
  if (fstat(rule.folder, &found) == 0) {
    uint64_t rights = TO_FILE;
    if (S_ISDIR(found.st_mode)) rights = TO_FOLDER;
    if (S_ISDIR(found.st_mode) && place->makes_folders) rights |= MAKE_DIR | REMOVE_DIR;
    rule.allowed = known(rights, version);
    (void)syscall(CALL_ADD_RULE, rules, RULE_PATH_BENEATH, &rule, 0U);
  }
  (void)close(rule.folder);
}

bool cli_sandbox_files(const cli_place *places, size_t count, bool reads) {
  unsigned version = cli_sandbox_landlock();
  ruleset handled = {.network = BIND_TCP | CONNECT_TCP, .scopes = TO_ABSTRACT_SOCKETS | SIGNAL};
  handled.files = known(CHANGES | EXECUTE | (reads ? 0 : READ_FILE | READ_DIR), version);
  if (!version || !forgo_privileges()) return false;
  int rules = (int)syscall(CALL_CREATE_RULESET, &handled, ruleset_bytes(version), 0U);
  if (rules < 0) return false;
  for (size_t i = 0; i < count; i++) allow(rules, &places[i], version);
  bool is_confined = syscall(CALL_RESTRICT_SELF, rules, 0U) == 0;
  (void)close(rules);
  return is_confined;
}

/* ---- seccomp ---- */

/* The number of the processor's native calls; others are not known here. */
#ifdef __has_include
#if __has_include( \
    <linux/seccomp.h>) && __has_include(<linux/filter.h>) && __has_include(<linux/audit.h>)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#if defined(__x86_64__) && defined(__LP64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && defined(__LP64__)
#define NATIVE AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64 && defined(AUDIT_ARCH_RISCV64)
#define NATIVE AUDIT_ARCH_RISCV64
#endif
#endif
#endif

#ifdef NATIVE

#include <sys/ioctl.h>

/* Calls that headers of the time of a build may not have; the numbers are the same on these processors. */
enum {
  PIDFD_SEND_SIGNAL = 424,
  IO_URING_SETUP = 425,
  OPEN_TREE = 428,
  MOVE_MOUNT = 429,
  FSOPEN = 430,
  FSMOUNT = 432,
  PIDFD_OPEN = 434,
  PIDFD_GETFD = 438,
  MOUNT_SETATTR = 442,
  FCHMODAT2 = 452,
  SETXATTRAT = 463,
  REMOVEXATTRAT = 466,
  FILE_SETATTR = 469,
};

static const int denied[] = {
    /* the network */
    SYS_socket,
    SYS_connect,
    SYS_bind,
    /* other programs */
    SYS_execve,
    /* what a file is, besides its content */
    SYS_fchmodat,
    FCHMODAT2,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
#ifdef SYS_chmod /* processors of after 2012 have only the newer calls */
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
    /* other processes: their memory, their files, signals */
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    PIDFD_GETFD,
    PIDFD_OPEN,
    PIDFD_SEND_SIGNAL,
    SYS_kill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
#if !CLI_CHECKS_LEAKS /* which stops threads with it */
    SYS_ptrace,
#endif
    /* ways around this filter, and around paths */
    IO_URING_SETUP,
    SYS_open_by_handle_at,
    /* the system */
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    OPEN_TREE,
    MOVE_MOUNT,
    FSOPEN,
    FSMOUNT,
    MOUNT_SETATTR,
    SYS_perf_event_open,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_quotactl,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_syslog,
    SYS_vhangup,
#ifdef SYS_iopl
    SYS_iopl,
    SYS_ioperm,
#endif
#ifdef SYS_execveat /* newer than the oldest headers that tessera is built with */
    SYS_execveat,
#endif
#ifdef SYS_bpf
    SYS_bpf,
#endif
#ifdef SYS_userfaultfd
    SYS_userfaultfd,
#endif
};

enum { DENIED = sizeof denied / sizeof *denied, FILTER_MOST = 2 * DENIED + 40 };

typedef struct filter {
  struct sock_filter code[FILTER_MOST];
  unsigned short count;
} filter;

static void put(filter *f, unsigned code, uint32_t operand, unsigned if_true, unsigned if_false) {
  assert(f->count < FILTER_MOST);
  f->code[f->count++] = (struct sock_filter){
      .code = (uint16_t)code, .jt = (uint8_t)if_true, .jf = (uint8_t)if_false, .k = operand};
}

static void load(filter *f, size_t offset) {
  put(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void fail_call(filter *f) {
  put(f, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
}

static void make_call(filter *f) {
  put(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

static void deny(filter *f, int call) {
  put(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1);
  fail_call(f);
}

/* The lower half of an argument; these processors have it first. */
static size_t argument(size_t index) {
  return offsetof(struct seccomp_data, args) + index * sizeof(uint64_t);
}

static void deny_other_processors(filter *f) {
  load(f, offsetof(struct seccomp_data, arch));
  put(f, BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0);
  fail_call(f);
  load(f, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
  put(f, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* x32 */
  fail_call(f);
#endif
}

/* Characters that are put into the input of a terminal are commands for the shell that reads it next. */
static void deny_typing(filter *f) {
  put(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5);
  load(f, argument(1));
  put(f, BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 1, 0);
  put(f, BPF_JMP | BPF_JEQ | BPF_K, 0x541C, 0, 1); /* TIOCLINUX */
  fail_call(f);
  make_call(f);
}

/* A thread of this process gets signals: that is what abort() does. */
static void deny_signals(filter *f) {
  put(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4);
  load(f, argument(0));
  put(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 1, 0);
  fail_call(f);
  make_call(f);
}

bool cli_sandbox_calls(const cli_sandbox_use *use) {
  filter f = {.count = 0};
  if (!cli_sandbox_has_seccomp() || !forgo_privileges()) return false;
  deny_other_processors(&f);
  deny_typing(&f);
  deny_signals(&f);
  for (size_t i = 0; i < DENIED; i++) deny(&f, denied[i]);
  if (!use->writes) deny(&f, SYS_fchmod);
  if (!use->accepts) {
    deny(&f, SYS_listen);
    deny(&f, SYS_accept);
    deny(&f, SYS_accept4);
  }
  make_call(&f);
  struct sock_fprog program = {.len = f.count, .filter = f.code};
  return prctl(PR_SET_SECCOMP, (long)SECCOMP_MODE_FILTER, &program, 0L, 0L) == 0;
}

/* A kernel that knows filters looks for this one. */
bool cli_sandbox_has_seccomp(void) {
  return prctl(PR_SET_SECCOMP, (long)SECCOMP_MODE_FILTER, NULL, 0L, 0L) != 0 && errno == EFAULT;
}

#else

bool cli_sandbox_calls(const cli_sandbox_use *use) {
  (void)use;
  return false;
}

bool cli_sandbox_has_seccomp(void) {
  return false;
}

#endif
