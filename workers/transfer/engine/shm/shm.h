/*
 * The transport for workers of one machine: the asker maps the holder's slab,
 * which nobody but the holder can write, and copies blocks out of it on threads
 * of its own. The descriptor says which machine, which socket, and a token,
 * which only the peer of that control connection was told of; for the token the
 * socket hands out the slab's file.
 *
 * It reads only: write() is not supported.
 */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_SHM_H
#define WORKERS_TRANSFER_ENGINE_SHM_SHM_H

#include "workers/transfer/engine/transport.h"

struct event_base;

/* Make it; base is borrowed. Returns it owned (ops->free), or NULL. */
[[nodiscard]] struct transport *shm_transport_new(struct event_base *base);

#endif
