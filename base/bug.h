/* A broken invariant: what no input can bring about, so a mistake in the
 * program. It is told, and what it concerns fails; tests abort. */
#ifndef BASE_BUG_H
#define BASE_BUG_H

#include "base/log.h"

/* Environment variable: if it is set, bug() aborts. Tests set it. */
#define BUG_ABORTS "CONDUCTOR_ABORT_ON_BUG"

/* Ends the program by abort() where BUG_ABORTS is set. */
void bug_abort(void);

/* bug(format, ...): logs an error, and aborts in tests. Else it returns, and
 * the caller ends what the error concerns. */
#define bug(...)                        \
    do {                                \
        log_error("bug: " __VA_ARGS__); \
        bug_abort();                    \
    } while (0)

#endif
