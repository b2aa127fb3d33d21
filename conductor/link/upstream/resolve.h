/*
 * A host name that is looked up periodically, as for a headless service: each
 * address is an instance.
 *
 * An address is added by the first answer that has it, and removed after
 * RESOLVE_MISSES answers in a row without it. "No such name" and "no address"
 * are answers. A failed look-up changes nothing; if it fails for one address
 * family only, the addresses of that family stay.
 * Over the limit on addresses, present ones stay and new ones are left out
 * until others go.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_RESOLVE_H
#define CONDUCTOR_LINK_UPSTREAM_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOLVE_MISSES 2
#define RESOLVE_TEXT_BYTES 40 /* numeric IPv6 address with its NUL */

struct dns;
struct loop;
struct resolver;

struct resolver_address {
    char text[RESOLVE_TEXT_BYTES];
    unsigned misses; /* answers in a row without the address */
};

/* Gets the name's n addresses, in strcmp() order, and how many were left out;
 * borrowed for the call. Returns false to be called again after the next
 * look-up. */
typedef bool resolver_changed(void *arg, const struct resolver_address *all,
                              size_t n, size_t n_left_out);

/* Called when a look-up ended; why_not is NULL, or why it failed; borrowed. */
typedef void resolver_looked_up(void *arg, const char *why_not);

struct resolver_ops {
    resolver_changed *changed; /* called after the first answer, which may be
                                  empty, and when addresses change */
    resolver_looked_up *looked_up;
};

/*
 * Looks the name up now, and then about every every_us. The callbacks come from
 * the loop.
 *   dns   borrowed until resolver_free(), like loop and ops
 *   host  copied; a name or a numeric address
 *   most  limit on addresses
 * Returns it owned, or NULL: out of memory.
 */
[[nodiscard]] struct resolver *resolver_new(struct loop *loop, struct dns *dns,
                                            const char *host, int64_t every_us,
                                            size_t most,
                                            const struct resolver_ops *ops,
                                            void *arg);

/* Ends a resolver; no callback follows. NULL is a no-op. */
void resolver_free(struct resolver *resolver);

#endif
