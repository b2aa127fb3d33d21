/* A broken invariant, which no input can cause: a mistake in the program. It is
 * logged, and the object concerned fails; tests abort. */
#ifndef BASE_BUG_H
#define BASE_BUG_H

#include "base/log.h"

/* Environment variable: if it is set, bug() aborts. Tests set it. */
#define BUG_ABORTS "CONDUCTOR_ABORT_ON_BUG"

/* Calls abort() if BUG_ABORTS is set. */
void bug_abort(void);

/* bug(format, ...): logs an error, and aborts in tests. Otherwise it returns,
 * and the caller ends the object concerned. */
#define bug(...)                        \
    do {                                \
        log_error("bug: " __VA_ARGS__); \
        bug_abort();                    \
    } while (0)

#endif
