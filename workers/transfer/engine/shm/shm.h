/*
 * The transport between workers on one machine: the asker maps the holder's
 * slab, which only the holder can write, and copies blocks out of it on threads
 * of its own. The descriptor has the machine's boot id, the name of a socket
 * and a token, which only the peer of the control connection gets; a process
 * that sends the token to the socket gets the slab's file.
 */
#ifndef WORKERS_TRANSFER_ENGINE_SHM_SHM_H
#define WORKERS_TRANSFER_ENGINE_SHM_SHM_H

#include "workers/transfer/engine/transport.h"

struct loop;

/* Makes the transport; `loop` is borrowed. Returns it owned (free it with
 * ops->free), or NULL. */
[[nodiscard]] struct transport *shm_transport_new(struct loop *loop);

#endif
