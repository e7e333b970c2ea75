/* dirent.h - for Windows, whose own one knows no UTF-8. */
#include "windows/posix.h"
