/* search.h - which allocations a text finds, by the rules of the page's search (docs/page.md).
 *
 * All words must be found: in the names of functions and files of the stack, as a line ("model.py:253"), in what the program
 * called the memory, or in the annotations and metadata around the allocation. They may also be a category, an address, or
 * sizes (">16MiB"). "a | b" finds either. Case does not matter.
 */
#ifndef CLI_TERMINAL_SEARCH_H
#define CLI_TERMINAL_SEARCH_H

#include <tessera/snapshot.h>
#include <tessera/unstable/view.h>

enum { SEARCH_BYTES = 256 }; /* of a text, with its zero */

/* What lists call a row without a stack. */
const char *terminal_no_stack(const tsr_view_device *device, uint32_t row);

/* Find rows: `*found` is by row, the caller's to free; NULL if the text has no word. Linear in the snapshot's text, and for each
 * word in rows. Returns 0 or TSR_ERROR_MEMORY. */
int terminal_search(const tsr_snapshot *snapshot, const tsr_view_device *device, const char *text,
                    uint8_t **found);

#endif
