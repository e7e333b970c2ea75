/* poll.h - for Windows, which has none. */
#include "windows/posix.h"
