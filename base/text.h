/* Texts in arrays of their own. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <string.h>

/* Copies a C string into to[0 .. size), cut to fit and terminated; size > 0.
 * For what every request does: snprintf() takes ten times as long. */
static inline void text_copy(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);

    memcpy(to, from, n);
    to[n] = '\0';
}

#endif
