/* browser.h - tessera.html, tessera itself as a page (docs/web.md). */
#ifndef CLI_BROWSER_H
#define CLI_BROWSER_H

#include <stdio.h>

/* Open the page that is installed with this program, which the caller closes; NULL if none is. */
FILE *cli_browser_open(void);

#endif
