/*
 * The transport over RDMA: one-sided reads over all cards of the
 * machine. It is a module that is loaded when it is wanted: a worker starts,
 * and moves KV in other ways, on a machine without libibverbs.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_RDMA_H
#define WORKERS_TRANSFER_ENGINE_RDMA_RDMA_H

#include "workers/transfer/engine/transport.h"

#define RDMA_SLICE_BYTES_DEFAULT (16u << 10)
#define RDMA_CREDITS_DEFAULT 32u
#define RDMA_END_POINTS_DEFAULT 256u

struct event_base;
struct evdns_base;

struct rdma_config {
    struct event_base *base; /* borrowed, as all pointers */
    struct evdns_base *dns;  /* NULL: addresses only */
    const char *listen_host; /* for the connections that set queue pairs up */
    uint16_t listen_port;    /* 0: any */
    const char *devices;     /* names with commas between; "": all */
    const char *sysfs;       /* its root; NULL: /sys */
    uint32_t slice_bytes;    /* 1,024 to 1 GiB; 0: RDMA_SLICE_BYTES_DEFAULT */
    uint32_t credits;        /* slices under way on a rail, 1 to 1,024;
                                0: RDMA_CREDITS_DEFAULT */
    uint32_t end_points;     /* queue pairs, 1 to 4,096, for asking and as many
                                for serving; 0: RDMA_END_POINTS_DEFAULT */
    int64_t stall_us;        /* a path that moves nothing for so long is given
                                up; 0: 5 s */
    /* One line of the log; level is an enum log_level. NULL: none. */
    void (*log)(int level, const char *line);
};

/*
 * rdma_transport_load(config, out, err, err_bytes): loads the module and makes
 * the transport. `config` is borrowed for the call, what it points to for the
 * transport's life. Returns 0 and *out, owned
 * (ops->free); or a negative errno and why, in err: -ENOTSUP (no module, or no
 * libibverbs), -ENODEV (no card), -EINVAL (a value of the config).
 */
[[nodiscard]] int rdma_transport_load(const struct rdma_config *config,
                                      struct transport **out, char *err,
                                      size_t err_bytes);

/* What the module exports under the name RDMA_MODULE_SYMBOL: the same, of the
 * interface of that version. */
#define RDMA_MODULE_SYMBOL "conductor_rdma_module"
#define RDMA_MODULE_VERSION 4u

struct rdma_module {
    uint32_t version;
    int (*make)(const struct rdma_config *config, struct transport **out,
                char *err, size_t err_bytes);
};

#endif
