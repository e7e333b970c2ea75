#include "write.h"
const sql_writer sql_arrow_writer = {1, NULL, NULL, NULL, NULL};
