/* See random.h. */
#include "traces/random.h"

void random_init(struct random_state *state, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        state->s[i] = random_mix(seed + (uint64_t)i * 0x9e3779b97f4a7c15U);
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t random_u64(struct random_state *state)
{
    uint64_t *s = state->s;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint32_t random_below(struct random_state *state, uint32_t bound)
{
    uint64_t high = random_u64(state) >> 32;

    return (uint32_t)((high * bound) >> 32);
}

uint64_t random_exponential_q32(struct random_state *state)
{
    /* A run first > u2 > ... > un that stops at n odd accepts `first`; the
     * number of refused runs is the integer part. 40 of them have a chance of
     * e^-40, so the bound only keeps the loop finite. */
    for (uint64_t whole = 0; whole < 40; whole++) {
        uint64_t first = random_u64(state) >> 32;
        uint64_t last = first;
        uint64_t length = 1;

        for (;;) {
            uint64_t u = random_u64(state) >> 32;

            if (u >= last)
                break;
            last = u;
            length++;
        }
        if (length % 2 == 1)
            return (whole << 32) | first;
    }
    return (uint64_t)40 << 32;
}
