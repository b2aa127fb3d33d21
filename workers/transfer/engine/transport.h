/*
 * A transport moves bytes between the registered memory of two workers. TCP,
 * shared memory and RDMA are transports. The four jobs of a transfer decide
 * which bytes move and negotiate it on the control connection
 * (proto/PROTOCOL.md); they do not know how bytes move.
 *
 *   holder                                  asker
 *   reg(slab)                               reg(slab)
 *   offer() -> descriptor --- TRANSPORTS --> open(descriptor) -> path
 *   grant(id, ranges) ------ control ------> read(path, op, grant, slices)
 *        <............ bytes move ..........>   done(op, rc)
 *   revoke(id) <------------ control -------  the asker has no op left
 *   revoked(id): the memory may be used for something else
 *
 * No worker writes into another one's memory: pushes are read, too
 * (docs/internals/decisions/091-pushes-are-read.md).
 *
 * Ownership:
 *   - Memory stays registered from reg() until the transport is freed.
 *   - The local memory of an op belongs to the transport from read() to done(),
 *     even after cancel(), and must not be reused before.
 *   - The ranges of a grant belong to the peer from grant() to revoked(). After
 *     revoke() the peer may still be reading until revoked() is called.
 *   - Slices, ranges and descriptors are borrowed for the call.
 *
 * A grant's id is random, and each op names one. If the holder serves the bytes
 * (tcp), it refuses ops outside the grant and closes the connection. Otherwise
 * (an RDMA card reads by itself), the transport must give its keys only to the
 * peer of the offer.
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

/* Most bytes of a transport's descriptor, which only the same transport on the
 * peer's side understands. */
#define TRANSPORT_DESCRIPTOR_MAX 1024u
/* Most registered regions of memory of a transport. */
#define TRANSPORT_REGIONS_MAX 8u

struct transport;       /* one way to move bytes, on this worker */
struct transport_offer; /* offer to one peer, which may read here */
struct transport_path;  /* path on which this side reads at a peer */

/* A contiguous range to read from the peer's memory into this side's. */
struct transport_slice {
    void *local;     /* target, in registered memory of this side */
    uint32_t region; /* the peer's, numbered in the order of its reg() */
    uint64_t offset; /* in that region */
    uint64_t bytes;  /* at least 1 */
    /* (bytes / sum_bytes): XXH3-64 of each sum_bytes of the slice. Must live
     * until done(). NULL = no check. Only a transport that `verifies` uses
     * them. */
    const uint64_t *sums;
    uint64_t sum_bytes;
};

/* A range of this side's memory that a grant covers. */
struct transport_range {
    uint32_t region;
    uint64_t offset;
    uint64_t bytes;
};

/* A peer, for opening a path to it. */
struct transport_peer {
    const char *host; /* host and port of its control connection */
    uint16_t port;
    const uint8_t *descriptor; /* (n_descriptor), from the same transport there;
                                  not trusted */
    size_t n_descriptor;
};

/* Callbacks of a path. */
struct transport_path_ops {
    /* Called when the path is open: read() may be called. Called once, unless
     * closed() comes first. */
    void (*stands)(void *arg);
    /* Called when the op is over, and its memory is the caller's again. rc: 0,
     * all bytes were read; -ECANCELED; -EILSEQ: they do not match their
     * checksums; -EACCES: the grant was revoked; other errors close the path,
     * too. Called once for each read() that returned 0. */
    void (*done)(void *arg, uint64_t op_id, int rc);
    /* Called when the path could not be opened, or failed. All of its ops are
     * done. The callee must call close(), now or later. */
    void (*closed)(void *arg, int rc, const char *why);
};

/* Callbacks of an offer. */
struct transport_offer_ops {
    /* Called when the grant's memory is read no more, once for each grant,
     * after its revoke() or after withdraw(). */
    void (*revoked)(void *arg, uint64_t grant_id);
    /* Called when the peer read outside its grants, or sent malformed bytes. It
     * is served nothing more; the callee calls withdraw() later. */
    void (*broken)(void *arg, const char *why);
    /* Called after withdraw(): all grants are revoked, the offer is freed. */
    void (*withdrawn)(void *arg);
};

struct transport_ops {
    const char *name; /* in TRANSPORTS, logs and metrics */
    /* Whether the transport checks the bytes it reads against the slices'
     * checksums; if not, the caller must. */
    bool verifies;

    /* Frees the transport with its regions, paths and offers, without a
     * callback. Afterwards memory of its ops and grants is no longer
     * touched. */
    void (*free)(struct transport *t);

    /* Registers [memory, memory + bytes): peers may read it under grants, and
     * paths may read into it. `fd` is the file mapped there from its first byte
     * on, or -1. Returns the region's number, or a negative errno: -ENOTSUP
     * (not this kind of memory), -ENOMEM, ... */
    int (*reg)(struct transport *t, void *memory, uint64_t bytes, int fd);
    /* Registers the pages of a GPU, once, after all other regions. `card` is
     * borrowed for the transport's life. Returns as reg(); -ENOTSUP: the card,
     * a network card or its driver lacks this. NULL = host memory only. */
    int (*reg_card)(struct transport *t, const struct shared_card *card);

    /* --- the side that is read --- */

    /* Makes an offer to one peer. Writes its descriptor to
     * descriptor[TRANSPORT_DESCRIPTOR_MAX] and its length to *n. Returns the
     * offer, or NULL on failure. */
    struct transport_offer *(*offer)(struct transport *t,
                                     const struct transport_offer_ops *ops,
                                     void *arg, uint8_t *descriptor, size_t *n);
    /* Lets the peer read n >= 1 ranges under `grant_id`. Returns 0, -EEXIST,
     * -EINVAL (not registered), or -ENOMEM. */
    int (*grant)(struct transport_offer *o, uint64_t grant_id,
                 const struct transport_range *ranges, uint32_t n);
    /* Ends a grant: refuses new ops under it; revoked() follows. A no-op for an
     * unknown id. */
    void (*revoke)(struct transport_offer *o, uint64_t grant_id);
    /* Ends the offer: closes the peer's connections here, then calls revoked()
     * for each grant, and withdrawn(). Call it once. */
    void (*withdraw)(struct transport_offer *o);

    /* --- the side that reads --- */

    /* Opens a path to the peer: stands() or closed() follows. Returns it, or
     * NULL: the peer cannot be reached (another machine, a malformed
     * descriptor); try another transport. */
    struct transport_path *(*open)(struct transport *t,
                                   const struct transport_peer *peer,
                                   const struct transport_path_ops *ops,
                                   void *arg);
    /* Returns whether the path can read a region registered by the peer with
     * reg_card(). Call it after stands(). NULL = it cannot. */
    bool (*reads_card)(const struct transport_path *p);
    /* Reads slices[n] from the peer under its grant. op_id must not be in use
     * on the path; ops may end in any order. Returns 0, and done() follows;
     * -ENOTCONN, and closed() follows; or another negative errno for these
     * slices, and no callback follows. */
    int (*read)(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
                const struct transport_slice *slices, uint32_t n);
    /* Ends the op soon: done() follows with -ECANCELED, or with 0 if it was
     * over. A no-op for an unknown id. */
    void (*cancel)(struct transport_path *p, uint64_t op_id);
    /* Returns all bytes moved so far, as a sign of progress. */
    uint64_t (*moved_bytes)(const struct transport_path *p);
    /* Frees the path, without a callback. All its ops must be done. */
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
