/* table.c - relations as virtual tables of SQLite.
 *
 * SQLite asks how to scan a table (best_index), and passes what it chose to each scan (filter). The plan travels as text:
 *
 *   index number   0: rows by part and position; else the column that rows are ordered by, plus 1; BY_PART: within each part
 *   index string   columns that are read, in hexadecimal, and for each argument an operator and a column:  3f =0 >1 ~4
 *
 * A plan may let through rows that SQLite does not want, since SQLite checks every condition again. So a value that cannot be
 * compared as an integer or a text is no condition at all. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

typedef struct table {
  sqlite3_vtab base; /* first: SQLite knows only this */
  sql_engine *engine;
  size_t relation;
} table;

typedef struct scan {
  sqlite3_vtab_cursor base; /* first */
  tsr_relation_cursor *cursor;
} scan;

/* What a module of SQLite is about: the engine and the relation. Owned by the module. */
typedef struct source {
  sql_engine *engine;
  size_t relation;
} source;

enum { BY_PART = 1 << 16 };

static const sql_lib *lib_of(const sqlite3_vtab *base) {
  return &((const table *)base)->engine->lib;
}

static int code_of(int status) {
  return status == TSR_ERROR_MEMORY ? SQLITE_NOMEM : SQLITE_ERROR;
}

/* ---- Declaration ---- */

/* The device of pinned host memory is a text. Column 0 is the only one with devices. */
static const char *type_of(const sql_engine *engine, size_t relation, size_t column) {
  const tsr_relation_column *about = &tsr_relation_at(relation)->columns[column];
  if (about->type == TSR_RELATION_TEXT) return "TEXT";
  bool has_host = tsr_relation_shape_of(engine->relations, relation).has_host;
  return has_host && column == 0 ? "INTEGER TEXT" : "INTEGER";
}

/* `CREATE TABLE x (device INTEGER, ...)`, of SQLite's memory; NULL when out of memory. */
static char *declaration_of(const sql_engine *engine, size_t index) {
  const sql_lib *lib = &engine->lib;
  const tsr_relation *relation = tsr_relation_at(index);
  char *text = lib->mprintf("CREATE TABLE x (");
  for (size_t i = 0; text && i < relation->column_count; i++) {
    char *longer = lib->mprintf("%s%s\"%w\" %s", text, i ? ", " : "", relation->columns[i].name,
                                type_of(engine, index, i));
    lib->free(text);
    text = longer;
  }
  char *whole = text ? lib->mprintf("%s)", text) : NULL;
  lib->free(text);
  return whole;
}

static int connect_table(sqlite3 *db, void *context, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **message) {
  const source *from = context;
  const sql_lib *lib = &from->engine->lib;
  (void)argc, (void)argv, (void)message;
  char *text = declaration_of(from->engine, from->relation);
  int code = text ? lib->declare_vtab(db, text) : SQLITE_NOMEM;
  lib->free(text);
  table *made = code == SQLITE_OK ? calloc(1, sizeof *made) : NULL;
  if (code != SQLITE_OK) return code;
  if (!made) return SQLITE_NOMEM;
  made->engine = from->engine;
  made->relation = from->relation;
  *out = &made->base;
  return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *base) {
  free(base);
  return SQLITE_OK;
}

/* ---- Planning ---- */

typedef struct plan {
  const tsr_relation *relation;
  double rows, parts;     /* that the scan looks at */
  double passed;          /* which share of these rows it passes on */
  double of_part, of_all; /* rows of a part; of the relation */
  bool has_part, has_row;
  char text[24 + 3 * 2 * TSR_RELATION_COLUMNS];
  size_t size;
  int arguments;
} plan;

static char operator_of(int op) {
  switch (op) {
  case SQLITE_INDEX_CONSTRAINT_EQ: return '=';
  case SQLITE_INDEX_CONSTRAINT_GT: return '>';
  case SQLITE_INDEX_CONSTRAINT_GE: return ']';
  case SQLITE_INDEX_CONSTRAINT_LT: return '<';
  case SQLITE_INDEX_CONSTRAINT_LE: return '[';
  default: return 0;
  }
}

/* How much of the rows is left, and how many SQLite still sees. */
static void weigh(plan *p, tsr_relation_access access, bool is_equal) {
  switch (access) {
  case TSR_ACCESS_PART:
    p->has_part |= is_equal;
    p->rows /= is_equal ? p->parts : 1.5;
    break;
  case TSR_ACCESS_ROW:
    p->has_row |= is_equal;
    p->rows = is_equal ? p->rows / (p->of_part > 1 ? p->of_part : 1) : p->rows / 3;
    break;
  case TSR_ACCESS_SORTED: p->rows = is_equal ? 2 * p->parts : p->rows / 3; break;
  case TSR_ACCESS_INDEX: p->rows /= is_equal ? 30 : 1; break;
  default: p->passed /= is_equal ? 10 : 3; break;
  }
  if (p->rows < 1) p->rows = 1;
}

static bool take(plan *p, const sql_lib *lib, sqlite3_index_info *info, int index) {
  const struct sqlite3_index_constraint *c = &info->aConstraint[index];
  char op = operator_of(c->op);
  if (!c->usable || !op || c->iColumn < 0) return false;
  const tsr_relation_column *column = &p->relation->columns[c->iColumn];
  bool is_text = column->type == TSR_RELATION_TEXT;
  if (column->access == TSR_ACCESS_NONE || p->size + 4 > sizeof p->text) return false;
  if (is_text && (op != '=' || strcmp(lib->vtab_collation(info, index), "BINARY") != 0))
    return false;
  p->text[p->size++] = op;
  p->text[p->size++] = (char)('A' + c->iColumn);
  p->text[p->size] = '\0';
  info->aConstraintUsage[index].argvIndex = ++p->arguments;
  weigh(p, column->access, op == '=');
  return true;
}

/* Whether a scan can return the order that SQLite wants; then `*number` selects it. Rows by part and position are in the order of
 * the part, of each sorted column, and of the position, which no two rows share. */
static bool can_order(const plan *p, const table *t, sqlite3_index_info *info, int *number) {
  /* For GROUP BY and DISTINCT, equal rows only have to be neighbours. */
  const sql_lib *lib = &t->engine->lib;
  bool is_either_way = lib->vtab_distinct && lib->vtab_distinct(info) > 0;
  bool has_one_part = p->parts <= 1 || p->has_part;
  bool names_part = false;
  for (int i = 0; i < info->nOrderBy; i++) {
    int column = info->aOrderBy[i].iColumn;
    if ((info->aOrderBy[i].desc && !is_either_way) || column < 0) return false;
    switch (tsr_relation_access_of(t->engine->relations, t->relation, (size_t)column)) {
    case TSR_ACCESS_PART:
      if (i) return false;
      names_part = true;
      break;
    case TSR_ACCESS_ROW: return names_part || has_one_part;
    case TSR_ACCESS_SORTED:
      if (!names_part && !has_one_part) return false;
      break;
    case TSR_ACCESS_INDEX:
      if (i != info->nOrderBy - 1 || i > names_part) return false;
      *number = (column + 1) | (names_part || has_one_part ? BY_PART : 0);
      break;
    default: return false;
    }
  }
  return info->nOrderBy > 0;
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
  const table *t = (const table *)base;
  const sql_lib *lib = &t->engine->lib;
  tsr_relation_shape shape = tsr_relation_shape_of(t->engine->relations, t->relation);
  plan p = {.relation = tsr_relation_at(t->relation),
            .rows = (double)shape.rows + 1,
            .parts = (double)(shape.parts ? shape.parts : 1),
            .passed = 1};
  p.of_part = p.rows / p.parts;
  p.size = (size_t)snprintf(p.text, sizeof p.text, "%" PRIx64 ";", (uint64_t)info->colUsed);
  for (int i = 0; i < info->nConstraint; i++) (void)take(&p, lib, info, i);
  int number = 0;
  info->orderByConsumed = shape.is_ascending && can_order(&p, t, info, &number);
  info->idxNum = number;
  if (p.has_row && (p.has_part || p.parts <= 1)) info->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
  info->estimatedRows = (sqlite3_int64)(p.rows * p.passed) + 1;
  info->estimatedCost =
      p.rows * (0.3 + p.passed) + 1; /* to look at a row takes a third of passing it on */
  info->idxStr = lib->mprintf("%s", p.text);
  info->needToFreeIdxStr = 1;
  return info->idxStr ? SQLITE_OK : SQLITE_NOMEM;
}

/* ---- Scanning ---- */

static int open_scan(sqlite3_vtab *base, sqlite3_vtab_cursor **out) {
  const table *t = (const table *)base;
  scan *made = calloc(1, sizeof *made);
  if (!made) return SQLITE_NOMEM;
  int status = tsr_relation_cursor_new(t->engine->relations, t->relation, &made->cursor, NULL);
  if (status) {
    free(made);
    return code_of(status);
  }
  *out = &made->base;
  return SQLITE_OK;
}

static int close_scan(sqlite3_vtab_cursor *base) {
  tsr_relation_cursor_free(((scan *)base)->cursor);
  free(base);
  return SQLITE_OK;
}

/* An integer that is not above, or not below, a number that may have a fraction. */
static int64_t whole(double value, bool is_low) {
  const double most = 9.2e18;
  double near = is_low ? floor(value) : ceil(value);
  if (near < -most) return INT64_MIN;
  return near > most ? INT64_MAX : (int64_t)near;
}

/* The range that an operator and a value leave; false if the value is none to compare integers with. */
static bool read_range(const sql_lib *lib, char op, sqlite3_value *value,
                       tsr_relation_condition *out) {
  int type = lib->value_type(value);
  if (type != SQLITE_INTEGER && type != SQLITE_FLOAT) return false;
  bool is_exact = type == SQLITE_INTEGER;
  double real = is_exact ? 0 : lib->value_double(value);
  int64_t low = is_exact ? lib->value_int64(value) : whole(real, true), high = low;
  if (!is_exact) high = whole(real, false);
  if (is_exact && op == '>') low += low < INT64_MAX;
  if (is_exact && op == '<') high -= high > INT64_MIN;
  out->low = op == '<' || op == '[' ? INT64_MIN : low;
  out->high = op == '>' || op == ']' ? INT64_MAX : high;
  return true;
}

static bool read_condition(const sql_lib *lib, const tsr_relation *relation, const char *what,
                           sqlite3_value *value, tsr_relation_condition *out) {
  *out = (tsr_relation_condition){.column = (size_t)(what[1] - 'A')};
  if (relation->columns[out->column].type == TSR_RELATION_INTEGER)
    return read_range(lib, what[0], value, out);
  if (lib->value_type(value) != SQLITE_TEXT) return false;
  const unsigned char *text = lib->value_text(value);
  out->is_text = true;
  out->text = (tsr_text){(const char *)text, (size_t)lib->value_bytes(value)};
  return text != NULL;
}

static int start_scan(sqlite3_vtab_cursor *base, int number, const char *text, int argc,
                      sqlite3_value **argv) {
  const table *t = (const table *)base->pVtab;
  const sql_lib *lib = &t->engine->lib;
  tsr_relation_condition conditions[2 * TSR_RELATION_COLUMNS];
  tsr_relation_scan how = {.conditions = conditions};
  tsr_error error = {.offset = TSR_OFFSET_NONE};
  char *at;
  how.wanted = strtoull(text, &at, 16);
  at++;
  for (int i = 0; i < argc && how.condition_count < 2 * TSR_RELATION_COLUMNS; i++, at += 2)
    how.condition_count += read_condition(lib, tsr_relation_at(t->relation), at, argv[i],
                                          &conditions[how.condition_count]);
  how.is_ordered = number != 0;
  how.is_by_part = number & BY_PART;
  how.order = how.is_ordered ? (size_t)(number & ~BY_PART) - 1 : 0;
  int status = tsr_relation_start(((scan *)base)->cursor, &how, &error);
  if (status && status != TSR_ERROR_MEMORY) {
    lib->free(base->pVtab->zErrMsg);
    base->pVtab->zErrMsg = lib->mprintf("%s", error.message);
  }
  return status ? code_of(status) : SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *base) {
  tsr_relation_next(((scan *)base)->cursor);
  return SQLITE_OK;
}

static int is_at_end(sqlite3_vtab_cursor *base) {
  return tsr_relation_at_end(((scan *)base)->cursor);
}

static int read_column(sqlite3_vtab_cursor *base, sqlite3_context *context, int column) {
  const sql_lib *lib = lib_of(base->pVtab);
  tsr_relation_value value;
  int status = tsr_relation_value_at(((scan *)base)->cursor, (size_t)column, &value);
  if (status) {
    lib->result_error_nomem(context);
    return SQLITE_NOMEM;
  }
  switch (value.kind) {
  case TSR_VALUE_NULL: lib->result_null(context); break;
  case TSR_VALUE_INTEGER: lib->result_int64(context, value.integer); break;
  case TSR_VALUE_TEXT:
    lib->result_text(context, value.text.data ? value.text.data : "", (int)value.text.size_bytes,
                     value.is_lasting ? SQLITE_STATIC : SQLITE_TRANSIENT);
    break;
  }
  return SQLITE_OK;
}

static int read_row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
  *out = tsr_relation_row_id(((scan *)base)->cursor);
  return SQLITE_OK;
}

/* ---- Modules ---- */

static const sqlite3_module module = {
    .iVersion = 1,
    .xCreate = connect_table,
    .xConnect = connect_table,
    .xBestIndex = best_index,
    .xDisconnect = disconnect_table,
    .xDestroy = disconnect_table,
    .xOpen = open_scan,
    .xClose = close_scan,
    .xFilter = start_scan,
    .xNext = next_row,
    .xEof = is_at_end,
    .xColumn = read_column,
    .xRowid = read_row_id,
};

/* A virtual table is created, rather than only known by its module, so that sqlite_schema lists it. */
static int add_table(sql_engine *engine, size_t relation) {
  const sql_lib *lib = &engine->lib;
  const char *name = tsr_relation_at(relation)->name;
  source *from = malloc(sizeof *from);
  if (!from) return SQLITE_NOMEM;
  *from = (source){engine, relation};
  int code =
      lib->create_module_v2(engine->db, name, &module, from, free); /* which frees it on failure */
  char *text = code == SQLITE_OK
                   ? lib->mprintf("CREATE VIRTUAL TABLE \"%w\" USING \"%w\"", name, name)
                   : NULL;
  if (code == SQLITE_OK) code = text ? lib->exec(engine->db, text, NULL, NULL, NULL) : SQLITE_NOMEM;
  lib->free(text);
  return code;
}

int sql_tables_register(sql_engine *engine) {
  int code = SQLITE_OK;
  for (size_t i = 0; code == SQLITE_OK && i < tsr_relation_count(); i++)
    if (tsr_relations_have(engine->relations, i)) code = add_table(engine, i);
  return code;
}
