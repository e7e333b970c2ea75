/* template.h - the page without its data, as viewer/ builds it: made from viewer/page.html by
 * embed.py. The addresses that its policy allows it to request go between `head` and `rest`, the data
 * between `rest` and `tail`. */
#ifndef TSR_PAGE_TEMPLATE_H
#define TSR_PAGE_TEMPLATE_H

#include <stddef.h>

extern const unsigned char tsr__template_head[], tsr__template_rest[], tsr__template_tail[];
extern const size_t tsr__template_head_size, tsr__template_rest_size, tsr__template_tail_size;

#endif
