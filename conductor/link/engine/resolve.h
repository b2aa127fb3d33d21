/*
 * A name whose addresses are looked up again and again, as those of a headless
 * service: each address is an instance.
 *
 *   an address belongs to the name from the first answer that has it, until
 *   RESOLVE_MISSES answers in a row were without it. "No such name" and "no
 *   address" are answers. A look-up that fails changes nothing; where it fails
 *   for one family of addresses and finds some of the other, those of the first
 *   stay.
 *   Of more addresses than there may be, those that belong to it already stay,
 *   and new ones have no place until others go.
 */
#ifndef CONDUCTOR_LINK_ENGINE_RESOLVE_H
#define CONDUCTOR_LINK_ENGINE_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOLVE_MISSES 2
#define RESOLVE_TEXT_BYTES 40 /* of IPv6 in numbers, with a NUL */

struct event_base;
struct dns;
struct resolver;

struct resolver_address {
    char text[RESOLVE_TEXT_BYTES];
    unsigned misses; /* answers in a row without it */
};

/* What the name has now, in the order of strcmp(), and how many addresses had
 * no place; borrowed for the call. Returns false if it is to be told again
 * after the next look-up. */
typedef bool resolver_changed(void *arg, const struct resolver_address *all,
                              size_t n, size_t n_left_out);

/* A look-up ended; why_not is NULL, or says why it failed; borrowed. */
typedef void resolver_looked_up(void *arg, const char *why_not);

struct resolver_ops {
    resolver_changed *changed; /* the first answer, which may have none; other
                                  addresses than before */
    resolver_looked_up *looked_up;
};

/*
 * Looks the name up now, and then every every_us, about. The callbacks come
 * from the loop.
 *   dns   borrowed until resolver_free(), like base and ops
 *   host  copied; a name, or an address in numbers
 *   most  addresses that it may have
 * Returns it owned, or NULL: out of memory.
 */
[[nodiscard]] struct resolver *resolver_new(struct event_base *base,
                                            struct dns *dns, const char *host,
                                            int64_t every_us, size_t most,
                                            const struct resolver_ops *ops,
                                            void *arg);

/* Ends it; no callback comes any more. NULL is a no-op. */
void resolver_free(struct resolver *resolver);

#endif
