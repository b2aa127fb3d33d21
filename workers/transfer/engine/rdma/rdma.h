/*
 * The transport over RDMA: one-sided reads over all network cards of the
 * machine. A module, loaded on demand, so that a worker also starts, and uses
 * other transports, on a machine without libibverbs.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_RDMA_H
#define WORKERS_TRANSFER_ENGINE_RDMA_RDMA_H

#include "workers/transfer/engine/transport.h"

#define RDMA_SLICE_BYTES_DEFAULT (16u << 10)
#define RDMA_CREDITS_DEFAULT 32u
#define RDMA_END_POINTS_DEFAULT 256u

struct loop;
struct dns;
struct stream_loop;

struct rdma_config {
    struct loop *loop;               /* borrowed, like all pointers here */
    struct stream_loop *stream_loop; /* of `loop` */
    struct dns *dns;                 /* NULL = addresses only */
    const char *listen_host; /* for the connections that set up queue pairs */
    uint16_t listen_port;    /* 0 = any free port */
    const char *devices;     /* names separated by commas; "" = all */
    const char *sysfs;       /* root of sysfs; NULL = /sys */
    uint32_t slice_bytes;    /* 1,024 to 1 GiB; 0 = RDMA_SLICE_BYTES_DEFAULT */
    uint32_t credits;        /* slices under way on a rail, 1 to 1,024;
                                0 = RDMA_CREDITS_DEFAULT */
    uint32_t end_points;     /* queue pairs, 1 to 4,096, for asking and as many
                                for serving; 0 = RDMA_END_POINTS_DEFAULT */
    int64_t stall_us;        /* a path that moves nothing for this long fails;
                                0 = 5 s */
    /* Writes a line of the log; level is an enum log_level. NULL = no log. */
    void (*log)(int level, const char *line);
};

/*
 * Loads the module and makes the transport. `config` is borrowed for the call,
 * its pointers for the transport's life. Returns 0 and *out, owned (free it
 * with ops->free); or a negative errno with a message in err[err_bytes]:
 * -ENOTSUP (no module, or no libibverbs), -ENODEV (no card), -EINVAL (a value
 * of the configuration), or the system's error.
 */
[[nodiscard]] int rdma_transport_load(const struct rdma_config *config,
                                      struct transport **out, char *err,
                                      size_t err_bytes);

/* The module exports a struct rdma_module under the name RDMA_MODULE_SYMBOL.
 * Other versions are refused. */
#define RDMA_MODULE_SYMBOL "conductor_rdma_module"
#define RDMA_MODULE_VERSION 5u

struct rdma_module {
    uint32_t version;
    int (*make)(const struct rdma_config *config, struct transport **out,
                char *err, size_t err_bytes);
};

#endif
