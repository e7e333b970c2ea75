/* version.c - see version.h. What the compiler knows of a build is asked of its macros, so that builds that meson does not
 * make (web/) are described as well. */
#include "version.h"

#include <dlfcn.h>
#include <stddef.h>
#include <tessera/tessera.h>

#include "sandbox.h"

/* ---- the build ---- */

#if defined __clang__
#define COMPILER           "clang " CLANG_TEXT(__clang_major__) "." CLANG_TEXT(__clang_minor__)
#define CLANG_TEXT(number) TEXT_OF(number)
#define TEXT_OF(number)    #number
#else
#define COMPILER "gcc " __VERSION__
#endif

#if defined _WIN32
#define SYSTEM "windows"
#elif defined __APPLE__
#define SYSTEM "macos"
#elif defined __wasi__
#define SYSTEM "wasi"
#else
#define SYSTEM "linux"
#endif

#if defined __x86_64__
#define PROCESSOR "x86_64"
#elif defined __aarch64__
#define PROCESSOR "aarch64"
#elif defined __riscv
#define PROCESSOR "riscv64"
#elif defined __wasm__
#define PROCESSOR "wasm32"
#else
#define PROCESSOR "other"
#endif

static void put_c_library(FILE *stream) {
#if defined __GLIBC__
  fprintf(stream, "\"glibc %d.%d\"", __GLIBC__, __GLIBC_MINOR__);
#elif defined __linux__
  fputs("\"musl\"", stream);
#else
  fputs("\"" SYSTEM "\"", stream);
#endif
}

static const char *const features[] = {
#ifdef CLI_HAS_SERVE
    "serve",
#endif
#ifdef CLI_HAS_TERMINAL
    "terminal",
#endif
#if !defined _WIN32 && !defined __wasi__
    "trace",
#endif
#if defined __linux__
    "confinement",
#endif
    NULL};

/* ---- libraries that are loaded when a command needs them ---- */

enum { NAMES = 2 };

typedef struct optional_library {
  const char *name, *use;
  const char *files[NAMES]; /* the first that can be loaded is used */
} optional_library;

/* The files are those of sql/, serve/http.c, terminal/screen.c, and the library's dist/mpi.c and kernels/library.c. */
static const optional_library optional[] = {
    {"SQLite", "`sql`", {CLI_LIBRARY_SQLITE}},
    {"DuckDB", "`sql --engine duckdb`, Parquet", {CLI_LIBRARY_DUCKDB}},
    {"libedit", "the prompt of `sql`", {CLI_LIBRARY_EDIT}},
#ifdef CLI_HAS_SERVE
    {"libmicrohttpd", "`serve`", {"libmicrohttpd.so.12"}},
#endif
#ifdef CLI_HAS_TERMINAL
    {"ncurses", "`view` on a terminal", {CLI_LIBRARY_CURSES}},
#endif
#if defined __linux__
    {"MPI", "ranks of `train` that are processes", {"libmpi.so.40", "libmpich.so.12"}},
    {"oneDNN", "`train --kernels onednn`", {"libdnnl.so.3", "libdnnl.so.2"}},
#endif
};

enum { OPTIONAL = sizeof optional / sizeof *optional };

static bool can_load_libraries(void) {
#if defined _WIN32
  return true;
#else
  void *itself = dlopen(NULL, RTLD_NOW); /* in a static program it is an error, too */
  if (itself) dlclose(itself);
  return itself != NULL;
#endif
}

/* The file of a library that this machine has; NULL: none. */
static const char *present(const optional_library *library) {
  for (size_t i = 0; i < NAMES && library->files[i]; i++) {
    void *loaded = dlopen(library->files[i], RTLD_NOW | RTLD_LOCAL);
    if (!loaded) continue;
    dlclose(loaded);
    return library->files[i];
  }
  return NULL;
}

/* ---- the answer ---- */

#define FIELD(KIND, KEY, ...) \
  { .key = (KEY), .kind = TSR_FIELD_##KIND, .about = __VA_ARGS__ }

static const tsr_record library_fields = {
    .name = "VersionLibrary",
    .about = "A library that is loaded when a command needs it.",
    .fields =
        (const tsr_field[]){
            FIELD(TEXT, "name", "what it is called"),
            FIELD(TEXT, "use", "what needs it"),
            FIELD(TEXT, "file", "the file that was loaded just now; null if this machine has none",
                  .is_nullable = true),
            {.key = NULL}},
};

const tsr_record cli_version_fields = {
    .name = "version",
    .about = "The build that runs, and what it finds on this machine.",
    .fields =
        (const tsr_field[]){
            FIELD(TEXT, "version", "as `tessera --version` prints it"),
            FIELD(TEXT, "commit",
                  "the commit that a package was built from; null for a build from a checkout",
                  .is_nullable = true),
            FIELD(TEXT, "compiler", "its name and version"),
            FIELD(TEXT, "system", "`linux`, `windows`, `macos` or `wasi`"),
            FIELD(TEXT, "processor", "`x86_64`, `aarch64`, `riscv64`, `wasm32` or `other`"),
            FIELD(TEXT, "c_library",
                  "what it was compiled for: `glibc` and the oldest version that it runs with, "
                  "`musl`, or the system"),
            FIELD(FLAG, "has_assertions", "whether it checks itself, and is slower for it"),
            FIELD(FLAG, "can_load_libraries",
                  "false for the static binary, which can use none of `libraries`"),
            FIELD(TEXT, "features",
                  "what only some builds have: `serve`, `terminal`, `trace`, `confinement` "
                  "([SECURITY.md](../SECURITY.md))",
                  .is_list = true),
            FIELD(RECORD, "libraries", "libraries that are loaded when a command needs them",
                  .record = &library_fields, .is_list = true),
            FIELD(COUNT, "landlock", "the kernel's version of Landlock; 0: none"),
            FIELD(FLAG, "seccomp", "whether the kernel has filters of system calls"),
            {.key = NULL}},
};

static void put_word(FILE *stream, const char *word) {
  fprintf(stream, word ? "\"%s\"" : "null", word);
}

static const char *flag(bool value) {
  return value ? "true" : "false";
}

static void put_build(FILE *stream) {
#ifdef CLI_COMMIT
  const char *commit = CLI_COMMIT;
#else
  const char *commit = NULL;
#endif
#ifdef NDEBUG
  bool has_assertions = false;
#else
  bool has_assertions = true;
#endif
  fprintf(stream, "  \"version\": \"%s\",\n  \"commit\": ", tsr_version());
  put_word(stream, commit);
  fputs(",\n  \"compiler\": \"" COMPILER "\",\n  \"system\": \"" SYSTEM
        "\",\n  \"processor\": \"" PROCESSOR "\",\n  \"c_library\": ",
        stream);
  put_c_library(stream);
  fprintf(stream, ",\n  \"has_assertions\": %s,\n  \"features\": [", flag(has_assertions));
  for (size_t i = 0; features[i]; i++) fprintf(stream, "%s\"%s\"", i ? ", " : "", features[i]);
  fputs("],\n", stream);
}

static void put_libraries(FILE *stream) {
  bool can_load = can_load_libraries();
  fprintf(stream, "  \"can_load_libraries\": %s,\n  \"libraries\": [\n", flag(can_load));
  for (size_t i = 0; i < OPTIONAL; i++) {
    fprintf(stream, "    {\"name\": \"%s\", \"use\": \"%s\", \"file\": ", optional[i].name,
            optional[i].use);
    put_word(stream, can_load ? present(&optional[i]) : NULL);
    fprintf(stream, "}%s\n", i + 1 < OPTIONAL ? "," : "");
  }
  fputs("  ],\n", stream);
}

void cli_put_version(FILE *stream, bool json) {
  if (!json) {
    fprintf(stream, "tessera %s\n", tsr_version());
    return;
  }
  fputs("{\n", stream);
  put_build(stream);
  put_libraries(stream);
  fprintf(stream, "  \"landlock\": %u,\n  \"seccomp\": %s\n}\n", cli_sandbox_landlock(),
          flag(cli_sandbox_has_seccomp()));
}
