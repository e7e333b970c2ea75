/* template.h - the pages without their data, as viewer/ builds them: made from viewer/page.html and viewer/ranks.html by
 * embed.py. The addresses that the page's policy allows it to request go between `head` and `rest`, the data
 * between `rest` and `tail`. */
#ifndef TSR_PAGE_TEMPLATE_H
#define TSR_PAGE_TEMPLATE_H

#include <stddef.h>

typedef struct tsr__template {
  const unsigned char *head, *rest, *tail;
  size_t head_size, rest_size, tail_size;
} tsr__template;

extern const tsr__template tsr__template_page, tsr__template_ranks;

#endif
