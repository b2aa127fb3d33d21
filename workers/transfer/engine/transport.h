/*
 * A transport moves bytes between the registered memory of two workers. TCP,
 * shared memory and RDMA are transports; the four jobs of a transfer decide
 * what is moved, say so on the control connection (proto/PROTOCOL.md), and do
 * not know how.
 *
 *   holder                                  asker
 *   reg(slab)                               reg(slab)
 *   offer() -> descriptor --- TRANSPORTS --> open(descriptor) -> path
 *   grant(id, ranges) ------ control ------> read(path, op, grant, slices)
 *        <............ bytes move ..........>   done(op, rc)
 *   revoke(id) <------------ control -------  the asker has no op left
 *   revoked(id): the memory may be used for something else
 *
 * Nobody writes into the memory of another: pushes are read, too
 * (docs/decisions/091-pushes-are-read.md).
 *
 * Who owns what:
 *   - Memory stays registered from reg() until the transport is freed.
 *   - Of an op, the local memory belongs to the transport from read() until
 *     its done() came, also after cancel(): until then it is in quarantine and
 *     must not be given to anybody else.
 *   - Of a grant, the ranges belong to the peer from grant() until revoked()
 *     came. revoke() asks for it; the peer's side may still be reading until
 *     then.
 *   - Slices, ranges and descriptors are borrowed for the call.
 *
 * A grant's id is random, and an op names it. Where the holder's own program
 * serves the bytes (tcp), it refuses an op on anything that the grant does not
 * cover, and closes the connection. Where it does not (a card that reads on
 * its own), the transport must hand its keys only to the peer of that offer.
 *
 * All functions are called, and call back, on the loop's thread. None calls
 * back from inside, and none blocks. Errors are negative errno.
 */
#ifndef WORKERS_TRANSFER_ENGINE_TRANSPORT_H
#define WORKERS_TRANSFER_ENGINE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workers/engine/shared_card.h"

/* What a peer is told of one transport; the bytes mean something to the same
 * transport on the other side only. */
#define TRANSPORT_DESCRIPTOR_MAX 1024u
/* Regions of memory that a transport has. */
#define TRANSPORT_REGIONS_MAX 8u
/* Bytes of a transport's name, with its NUL. */
#define TRANSPORT_NAME_MAX 16u

struct transport;       /* one way to move bytes, on this worker */
struct transport_offer; /* the side of one peer that may read here */
struct transport_path;  /* the side that reads at a peer */

/* Bytes that move in one go: local and remote are equally long. */
struct transport_slice {
    void *local;     /* in memory that this side has registered */
    uint32_t region; /* of the peer, counted in the order of its reg() */
    uint64_t offset; /* in that region */
    uint64_t bytes;  /* at least 1 */
    /* Of a read: XXH3-64 of each sum_bytes of it, (bytes / sum_bytes), which
     * must live until done(); NULL: nothing is checked. Only a transport that
     * `verifies` looks at them. */
    const uint64_t *sums;
    uint64_t sum_bytes;
};

/* Bytes of this side that a grant covers. */
struct transport_range {
    uint32_t region;
    uint64_t offset;
    uint64_t bytes;
};

/* A peer, as seen from the side that opens a path to it. */
struct transport_peer {
    const char *host; /* where its control connection was made to */
    uint16_t port;
    const uint8_t *descriptor; /* (n_descriptor), of the same transport there;
                                  not trusted: lengths are checked */
    size_t n_descriptor;
};

/* Calls back to who opened a path. */
struct transport_path_ops {
    /* The path stands: ops may be given. Once, unless closed() comes first. */
    void (*stands)(void *arg);
    /* The op is over: 0, all of its bytes were moved; -ECANCELED; -EILSEQ: they
     * do not match their sums; -EACCES: the grant was revoked meanwhile; or why
     * not, and the path is then closed, too. Its memory is the caller's again.
     * Once for each read() that returned 0. */
    void (*done)(void *arg, uint64_t op_id, int rc);
    /* The path cannot be used (any more). All of its ops are done. The callee
     * calls close(), not necessarily from within. */
    void (*closed)(void *arg, int rc, const char *why);
};

/* Calls back to who made an offer. */
struct transport_offer_ops {
    /* Nobody reads the grant's memory any more. Once for each grant,
     * behind its revoke() or behind withdraw(). */
    void (*revoked)(void *arg, uint64_t grant_id);
    /* The peer broke the rules: it asked for what it was not granted, or sent
     * what is malformed. Nothing more is served; withdraw() is next. */
    void (*broken)(void *arg, const char *why);
    /* Behind withdraw(): the offer is gone, all of its grants are revoked. */
    void (*withdrawn)(void *arg);
};

struct transport_ops {
    const char *name; /* in TRANSPORTS, logs and metrics */
    /* Whether reads of it are checked against checksums by the transport; if
     * not, the engine does it when they are done. */
    bool verifies;

    /* Free it and what it registered. What is still open or offered goes with
     * it, without a callback: when this returns nobody touches the memory of
     * its ops and grants any more, and the caller forgets their paths and
     * offers. */
    void (*free)(struct transport *t);

    /* Peers may read [memory, memory + bytes) where they are granted to; paths
     * may read into it. `fd` is a file that is
     * mapped there from its begin, or -1. Returns the region's number, or
     * negative: -ENOTSUP (not this kind of memory), -ENOMEM, ... */
    int (*reg)(struct transport *t, void *memory, uint64_t bytes, int fd);
    /* The same for the pages of a card, behind all other regions and once;
     * borrowed as long as memory is registered. -ENOTSUP: the card does not
     * share them so, or a network card, or its driver, cannot. NULL: only host
     * memory. */
    int (*reg_card)(struct transport *t, const struct shared_card *card);

    /* --- the side that is read --- */

    /* Be ready for one peer. Writes what it is told to
     * descriptor[TRANSPORT_DESCRIPTOR_MAX] and its length to *n. Returns the
     * offer, or NULL: it cannot. */
    struct transport_offer *(*offer)(struct transport *t,
                                     const struct transport_offer_ops *ops,
                                     void *arg, uint8_t *descriptor, size_t *n);
    /* The peer may read these n ranges, at least one, under `grant_id`. 0,
     * -EEXIST, -ENOMEM. */
    int (*grant)(struct transport_offer *o, uint64_t grant_id,
                 const struct transport_range *ranges, uint32_t n);
    /* No new op under it; revoked() follows. A no-op for one that is not
     * known. */
    void (*revoke)(struct transport_offer *o, uint64_t grant_id);
    /* Ends it: closes what the peer has open here, surely, then calls revoked()
     * for the grants and withdrawn(). Once. */
    void (*withdraw)(struct transport_offer *o);

    /* --- the side that reads --- */

    /* Opens a path to the peer: stands() or closed() follows. NULL: it cannot
     * reach that peer (another machine, a malformed descriptor): the next
     * transport is tried. */
    struct transport_path *(*open)(struct transport *t,
                                   const struct transport_peer *peer,
                                   const struct transport_path_ops *ops,
                                   void *arg);
    /* Whether it also reads regions that a peer has registered by reg_card().
     * Once it stands. NULL: it does not. */
    bool (*reads_card)(const struct transport_path *p);
    /* Read n slices from the peer under its grant. op_id is
     * not in use on that path. 0: done() follows; -ENOTCONN: closed() does; or
     * why these slices cannot be moved, and nothing follows.
     * Ops may end in any order. */
    int (*read)(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
                const struct transport_slice *slices, uint32_t n);
    /* Ends the op soon: done() follows with -ECANCELED, or with 0 if it was
     * over. A no-op for one that is not known. */
    void (*cancel)(struct transport_path *p, uint64_t op_id);
    /* All bytes that it has moved: whether it gets on. */
    uint64_t (*moved_bytes)(const struct transport_path *p);
    /* Frees the path. All its ops must be done. No callback comes any more. */
    void (*close)(struct transport_path *p);
};

/* The first member of every transport, offer and path. */
struct transport {
    const struct transport_ops *ops;
};

struct transport_offer {
    const struct transport_ops *ops;
};

struct transport_path {
    const struct transport_ops *ops;
};

#endif
