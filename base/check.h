/* Invariants that are checked where they would break, also in production. Code
 * that cannot log notes the first one that broke; its shell takes the note each
 * tick, and calls bug(). */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* CHECK(broken, holds): returns whether the invariant `holds`; if not, notes
 * its text in *broken, a const char * that is NULL before the first note. */
#define CHECK(broken, holds) check_note(broken, holds, #holds)

static inline bool check_note(const char **broken, bool holds, const char *text)
{
    if (!holds && !*broken)
        *broken = text;
    return holds;
}

/* Returns the note, and removes it; NULL = no invariant broke. */
static inline const char *check_take(const char **broken)
{
    const char *text = *broken;

    *broken = NULL;
    return text;
}

#endif
