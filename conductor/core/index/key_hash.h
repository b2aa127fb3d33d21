/*
 * The hash of a block's key in a table. Strangers can choose keys, by searching
 * for prompts whose keys collide: so the hash depends on all bits of a key and
 * on a seed that strangers do not know. Pure.
 */
#ifndef CONDUCTOR_CORE_INDEX_KEY_HASH_H
#define CONDUCTOR_CORE_INDEX_KEY_HASH_H

#include <stdint.h>

/* Made by key_secret_of(). */
struct key_secret {
    uint64_t at[2]; /* the second is odd */
};

/* Spreads z over all 64 bits (splitmix64). */
static inline uint64_t key_mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns the secret of a seed, which is random in a daemon. */
static inline struct key_secret key_secret_of(uint64_t seed)
{
    uint64_t first = key_mix(seed);

    return (struct key_secret){{first, key_mix(first) | 1}};
}

/* Returns 64 bits that nobody can choose without the secret: the folded 128-bit
 * product of wyhash. */
static inline uint64_t key_hash(const struct key_secret *secret, uint64_t key)
{
    __uint128_t product = (__uint128_t)(key ^ secret->at[0]) * secret->at[1];

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
