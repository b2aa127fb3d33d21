/* The tables that an implementation of base/loop/loop.h and net.h fills in.
 * Included by implementations only. */
#ifndef BASE_LOOP_OPS_H
#define BASE_LOOP_OPS_H

#include "base/loop/loop.h"
#include "base/loop/net.h"

/* Each function is as the one of loop.h with its name. The loop's functions
 * have filled in the public members of timers and watches. */
struct loop_ops {
    bool has_threads;
    void (*free)(struct loop *loop);
    int (*run)(struct loop *loop);
    void (*stop)(struct loop *loop);
    int (*turn)(struct loop *loop, int64_t wait_us);
    int64_t (*now_us)(const struct loop *loop);
    int64_t (*wall_us)(const struct loop *loop);
    uint64_t (*random)(struct loop *loop);
    int64_t (*turn_us)(const struct loop *loop);
    void (*timer_init)(struct loop_timer *t);
    int (*timer_start)(struct loop_timer *t, int64_t us);
    void (*timer_defer)(struct loop_timer *t);
    void (*timer_stop)(struct loop_timer *t);
    bool (*timer_pending)(const struct loop_timer *t);
    void (*watch_init)(struct loop_watch *w, bool signal, bool first);
    int (*watch_start)(struct loop_watch *w, int64_t patience_us);
    void (*watch_stop)(struct loop_watch *w);
    bool (*watch_pending)(const struct loop_watch *w);
    void (*watch_report)(struct loop_watch *w, unsigned what);
};

/* Each function is as the one of net.h with its name. */
struct net_ops {
    int (*listen)(struct loop *loop, const struct sockaddr *address, size_t n);
    int (*accept)(struct loop *loop, int fd);
    int (*connect)(struct loop *loop, const struct sockaddr *address, size_t n);
    int (*error)(struct loop *loop, int fd);
    ssize_t (*read)(struct loop *loop, int fd, void *to, size_t n);
    int (*peek)(struct loop *loop, int fd);
    ssize_t (*write)(struct loop *loop, int fd, const struct iovec *parts,
                     size_t n_parts);
    void (*shut)(struct loop *loop, int fd);
    void (*close)(struct loop *loop, int fd);
    int (*address)(struct loop *loop, int fd, bool peer,
                   struct sockaddr_storage *address);
    void (*set)(struct loop *loop, int fd, int level, int option, int value);
};

extern const struct net_ops kernel_net_ops;

/* The beginning of an implementation's own struct. */
struct loop {
    const struct loop_ops *ops;
    const struct net_ops *net;
};

#endif
