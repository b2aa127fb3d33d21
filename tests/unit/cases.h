/* How many random cases a test goes through. */
#ifndef TESTS_UNIT_CASES_H
#define TESTS_UNIT_CASES_H

#include <stdint.h>
#include <stdlib.h>

/* CONDUCTOR_CASES percent of `n`, at least 1; without it all of them. meson
 * sets it where a build with sanitizers takes several times as long. */
static inline uint32_t cases_of(uint32_t n)
{
    const char *percent = getenv("CONDUCTOR_CASES");
    uint64_t of = percent ? n * strtoull(percent, NULL, 10) / 100 : n;

    return of == 0 ? 1 : of > UINT32_MAX ? UINT32_MAX : (uint32_t)of;
}

#endif
