/*
 * Which instance served a session last: a soft preference of the policy. One
 * place for each of SESSIONS_MAX remainders of a session's number: where two
 * sessions meet, the later one stays.
 */
#ifndef CONDUCTOR_SERVICE_SESSIONS_H
#define CONDUCTOR_SERVICE_SESSIONS_H

#include <stdint.h>

#define SESSIONS_MAX 16384u

struct sessions {
    struct session {
        uint64_t number; /* 0: none */
        uint32_t instance;
    } at[SESSIONS_MAX];
};

/* The pool id of the instance that served a session last; POOL_NO_INSTANCE: it
 * is not known, or the number is 0. NULL knows none. */
uint32_t sessions_find(const struct sessions *all, uint64_t number);

/* Notes it; nothing for number 0. Makes the table with the first, if there is
 * memory. */
void sessions_note(struct sessions **all, uint64_t number, uint32_t instance);

#endif
