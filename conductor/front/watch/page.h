/* The page as embed.py has made it. */
#ifndef CONDUCTOR_FRONT_WATCH_PAGE_H
#define CONDUCTOR_FRONT_WATCH_PAGE_H

#include <stddef.h>

extern const char page_html[]; /* (page_bytes) */
extern const size_t page_bytes;
extern const char page_policy[]; /* its Content-Security-Policy */

#endif
