/* template.h - the page without its data, as viewer/ builds it: made from viewer/page.html by
 * embed.py. Between `head` and `rest` stands what its policy allows it to ask, between `rest` and
 * `tail` the data. */
#ifndef TSR_REPORT_TEMPLATE_H
#define TSR_REPORT_TEMPLATE_H

#include <stddef.h>

extern const unsigned char tsr__template_head[], tsr__template_rest[], tsr__template_tail[];
extern const size_t tsr__template_head_size, tsr__template_rest_size, tsr__template_tail_size;

#endif
