/* A user's rules: any text, strict and lenient, and what its patterns find in a snapshot's names.
 */
#include "../unit/study_support.h"
#include "questions.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char names[] =
    "{\"segments\": [], \"device_traces\": [[{\"action\": \"alloc\", \"addr\": 4096, \"size\": 1, "
    "\"frames\": [{\"name\": \"forward\", \"filename\": \"/a/modell\\u00e9.py\", \"line\": 1}, "
    "{\"name\": \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaab\", \"filename\": \"\\ud800\", \"line\": 2}]}]]}";

static void ask(const tsr_rules *rules) {
  tsr_snapshot *snapshot = NULL;
  tsr_profile *profile = NULL;
  tsr_error error = {0};
  require(!tsr_snapshot_read(names, sizeof names - 1, NULL, &snapshot, NULL), "a snapshot");
  tsr_profile_options how = {.by = TSR_PROFILE_BY_RULES, .rules = rules};
  check_error(tsr_profile_compute(test_study(snapshot), &how, NULL, &profile, &error), &error);
  if (profile) require(profile->devices[0].group_count == 1, "one allocation, one group");
  tsr_profile_free(profile);
  tsr_snapshot_free(snapshot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (int mode = TSR_RULES_STRICT; mode <= TSR_RULES_LENIENT; mode++) {
    tsr_rules *rules = NULL;
    tsr_rule_problem problem = {0};
    tsr_error error = {0};
    int status =
        tsr_rules_parse((const char *)data, size, (tsr_rules_mode)mode, &rules, &problem, &error);
    check_error(status, &error);
    require((status == 0) == (rules != NULL), "rules, or an error");
    if (problem.message[0])
      require(problem.offset_bytes <= strlen(problem.rule.pattern), "a place in the pattern");
    if (rules) ask(rules);
    tsr_rule_problem_release(&problem);
    tsr_rules_free(rules);
  }
  return 0;
}
