/*
 * Looks up host names on the event loop, by c-ares: in /etc/hosts, then at name
 * servers, with EDNS0, and over TCP if an answer is truncated. Blocks only to
 * read /etc/hosts. "localhost" and names below it are 127.0.0.1 and ::1, as RFC
 * 6761 says.
 *
 * IPv4 and IPv6 addresses are two questions. When one of them has found
 * addresses, it waits DNS_SKEW_US at most for the other.
 */
#ifndef BASE_DNS_H
#define BASE_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define DNS_SKEW_US 3000000
/* Time-out of the first try in ms; each further try doubles it: a question
 * without an answer fails after 2 + 4 + 8 s. */
#define DNS_TIMEOUT_MS 2000
#define DNS_TRIES 3
/* Largest UDP answer in bytes, announced by EDNS0, that no network fragments.
 * Longer answers come over TCP. */
#define DNS_UDP_BYTES 1232

struct dns;
struct dns_lookup;
struct loop;

struct dns_address {
    int family; /* AF_INET or AF_INET6 */
    unsigned char bytes[16];
    uint32_t scope; /* interface of an IPv6 address; 0 = none */
};

/* The addresses of one family. */
struct dns_half {
    const char *why_not; /* why the question failed; NULL = it was answered */
    struct dns_address *all; /* (n); an answer may have none */
    size_t n;
};

struct dns_answer {
    struct dns_half v4, v6;
};

/* Called once, from the loop, at a look-up's end; the answer is borrowed. */
typedef void dns_done(void *arg, const struct dns_answer *answer);

/* Makes a resolver that asks the name server ADDRESS:PORT, or, if `server` is
 * "", the servers in /etc/resolv.conf. Borrows the loop. Returns it owned, or
 * NULL: out of memory, or `server` is no address. */
[[nodiscard]] struct dns *dns_new(struct loop *loop, const char *server);

/* Frees it; all its look-ups must have ended or been cancelled. NULL is a
 * no-op. */
void dns_free(struct dns *dns);

/* Looks up a name or a numeric address (copied). Returns the look-up, which is
 * invalid after done(), or NULL: out of memory. */
[[nodiscard]] struct dns_lookup *dns_look_up(struct dns *dns, const char *host,
                                             dns_done *done, void *arg);

/* Looks a host up as dns_look_up() does, but ends with the first IPv4 address
 * and waits for no IPv6 ones: for callers that use dns_first() alone. */
[[nodiscard]] struct dns_lookup *
dns_look_up_first(struct dns *dns, const char *host, dns_done *done, void *arg);

/* Cancels a look-up: done() is not called. NULL is a no-op. */
void dns_cancel(struct dns_lookup *lookup);

/* Returns whether the host is a numeric address; if so, writes *out. */
bool dns_numeric(const char *host, struct dns_address *out);

/* Returns the first address, IPv4 before IPv6; NULL = none. */
const struct dns_address *dns_first(const struct dns_answer *answer);

/* Returns why a question failed; NULL = the name has no address. Borrowed from
 * the answer. */
const char *dns_why_not(const struct dns_answer *answer);

/* Writes the address with a port to *out. Returns its size in bytes. */
socklen_t dns_sockaddr(const struct dns_address *address, uint16_t port,
                       struct sockaddr_storage *out);

#endif
