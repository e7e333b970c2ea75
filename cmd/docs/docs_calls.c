/* docs_calls.c - python/tessera/_calls.py: questions about a model as functions of Python, whose keywords are the parameters of
 * the question's row. */
#include <stdbool.h>
#include <string.h>
#include <tessera/tessera.h>

#include "docs.h"

enum { COLUMNS = 120 };

/* The functions, and what each of their questions needs of _simulate.py or _plan.py. */
static const struct {
  const char *question, *answer, *call, *model, *about;
} calls[] = {
    {"simulate", "Simulation", "simulated", "model: Any",
     "Run training steps on the model of PyTorch's allocator, and return what they need.\n\n"
     "    `model` is a name (see models()), the path of a config.json, or its content. What is not "
     "given has\n    the command's default. `plan` and `rates` are paths of such files, or their "
     "contents.\n"},
    {"plan", "Plan", "planned", "model: Any = None",
     "Find the fastest plan with which a training fits into a budget, or list what each technique "
     "saves and costs.\n\n"
     "    `model` is a name (see models()), the path of a config.json or of a step graph, or its "
     "content. What is not given has the\n    command's default. `plan` and `rates` are paths of "
     "such files, or their contents. `recorded` is a snapshot of a run (`--from`),\n    and "
     "`target` a program in whose words the plan is given, too (`--for`).\n"}};

/* Parameters that have another keyword: two are keywords of Python, and one is a flag that is on by default. */
static const struct {
  const char *question, *name, *keyword;
  bool is_inverted;
} keywords[] = {{"simulate", "no_kv_cache", "kv_cache", true},
                {"plan", "from", "recorded", false},
                {"plan", "for", "target", false}};

/* How a parameter is called, and whether its flag is turned around. */
static const char *keyword_of(const tsr_question *question, const tsr_parameter *row,
                              bool *is_inverted) {
  *is_inverted = false;
  for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
    if (strcmp(keywords[i].question, question->name) != 0) continue;
    if (strcmp(keywords[i].name, row->name) != 0) continue;
    *is_inverted = keywords[i].is_inverted;
    return keywords[i].keyword;
  }
  return row->name;
}

static bool is_keyword(const tsr_parameter *row) {
  return !(row->hidden_from & TSR_INTERFACE_PYTHON) && row->kind != TSR_PARAMETER_OBJECT;
}

static bool is_number_text(const tsr_parameter *row) {
  return row->kind == TSR_PARAMETER_TEXT && row->stored == TSR_STORED_REAL;
}

static const char *type_of(const tsr_parameter *row, bool is_inverted) {
  if (is_number_text(row)) return "Union[None, float, str] = None";
  switch (row->kind) {
  case TSR_PARAMETER_FLAG: return is_inverted ? "bool = True" : "bool = False";
  case TSR_PARAMETER_COUNT:
  case TSR_PARAMETER_INTEGER: return "Optional[int] = None";
  case TSR_PARAMETER_BYTES: return "Union[None, int, str] = None";
  case TSR_PARAMETER_FILE: return "Union[None, str, Mapping[str, Any]] = None";
  case TSR_PARAMETER_SNAPSHOT: return "Optional[Snapshot] = None";
  case TSR_PARAMETER_CHOICES: return "Union[None, str, Sequence[str]] = None";
  default: return "Optional[str] = None";
  }
}

/* Text, on a line of its own if the line would be too long; `indent` blanks begin the next one. */
static void print_item(FILE *stream, const char *text, size_t *column, size_t indent) {
  size_t length = strlen(text);
  if (*column + length + 1 > COLUMNS) {
    fprintf(stream, "\n%*s", (int)indent, "");
    *column = indent;
  } else if (*column > indent) {
    fputc(' ', stream);
    (*column)++;
  }
  fputs(text, stream);
  *column += length;
}

static void print_signature(FILE *stream, const tsr_question *question, const char *model) {
  char item[160];
  bool is_inverted;
  const tsr_parameter *row;
  int indent = fprintf(stream, "\n\ndef %s(", question->name) - 2;
  size_t column = (size_t)indent;
  snprintf(item, sizeof item, "%s, *,", model);
  print_item(stream, item, &column, (size_t)indent);
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) {
    if (!is_keyword(row)) continue;
    const char *keyword = keyword_of(question, row, &is_inverted);
    snprintf(item, sizeof item, "%s: %s,", keyword, type_of(row, is_inverted));
    print_item(stream, item, &column, (size_t)indent);
  }
  print_item(stream, "**more: Any)", &column, (size_t)indent);
}

/* "'batch': batch,": None for what is not given. */
static void print_member(FILE *stream, const tsr_question *question, const tsr_parameter *row,
                         size_t *column) {
  char item[160];
  bool is_inverted;
  const char *keyword = keyword_of(question, row, &is_inverted), *before = "", *after = "";
  if (is_inverted) before = "not ";
  if (row->kind == TSR_PARAMETER_FLAG || row->kind == TSR_PARAMETER_BYTES ||
      row->kind == TSR_PARAMETER_SETTING)
    after = " or None";
  if (row->kind == TSR_PARAMETER_FILE) before = "file_of(", after = ")";
  if (is_number_text(row)) before = "text_of(", after = ")";
  snprintf(item, sizeof item, "'%s': %s%s%s,", row->name, before, keyword, after);
  print_item(stream, item, column, 8);
}

static void print_call(FILE *stream, const tsr_question *question, size_t index) {
  const tsr_parameter *row, *snapshot = NULL;
  size_t column = 8;
  bool is_inverted;
  print_signature(stream, question, calls[index].model);
  fprintf(stream, " -> %s:\n    \"\"\"%s    \"\"\"\n    return %s(model, {\n        ",
          calls[index].answer, calls[index].about, calls[index].call);
  for (size_t i = 0; (row = tsr_question_parameter(question, i)); i++) {
    if (is_keyword(row) && row->kind == TSR_PARAMETER_SNAPSHOT)
      snapshot = row;
    else if (is_keyword(row))
      print_member(stream, question, row, &column);
  }
  print_item(stream, "**more}", &column, 8);
  if (snapshot) fprintf(stream, ", %s", keyword_of(question, snapshot, &is_inverted));
  fputs(")\n", stream);
}

void cli_python_calls(FILE *stream) {
  fputs("\"\"\"simulate() and plan(), with the parameters of these questions as keywords.\n\n"
        "Written by gendocs (`./run generate`) from the rows of the questions: change it "
        "there.\n\"\"\"\n"
        "# pylint: disable=redefined-outer-name,redefined-builtin\n"
        "from typing import Any, Mapping, Optional, Sequence, Union\n\n"
        "from ._answers import Plan\n"
        "from ._plan import planned\n"
        "from ._simulate import Simulation, document, file_of, simulated, text_of\n"
        "from ._snapshot import Snapshot\n",
        stream);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const tsr_question *question = tsr_question_find(calls[i].question);
    if (question) print_call(stream, question, i);
  }
  fputs("\n\n", stream);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    const char *name = calls[i].question;
    fprintf(stream, "document(%s, '%s', {", name, name);
    bool is_first = true;
    for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++) {
      if (keywords[k].is_inverted || strcmp(keywords[k].question, name) != 0) continue;
      fprintf(stream, "%s'%s': '%s'", is_first ? "" : ", ", keywords[k].name, keywords[k].keyword);
      is_first = false;
    }
    fputs("})\n", stream);
  }
}
