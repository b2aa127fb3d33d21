/* Serves a model of Redis on a loop's sockets: a port of the machine, or of a
 * virtual net. */
#ifndef TESTS_WORLD_REDIS_FRONT_H
#define TESTS_WORLD_REDIS_FRONT_H

#include <stddef.h>
#include <stdint.h>

struct loop;
struct mr;
struct mr_front;

/* Listens at host:port, port 0 = any, and serves all connections until
 * mr_front_free(). The model's time is the loop's. Borrows loop and m. Returns
 * 0 with *out owned; or a negative errno with "host:port: why" in err. */
[[nodiscard]] int mr_front_new(struct loop *loop, struct mr *m,
                               const char *host, uint16_t port,
                               struct mr_front **out, char *err,
                               size_t err_bytes);

/* Closes everything. NULL is a no-op. */
void mr_front_free(struct mr_front *f);

/* Returns the port that it listens on. */
uint16_t mr_front_port(const struct mr_front *f);

/* Call it after a fault: looks anew when the model is due. What connections
 * have as output goes out by itself. */
void mr_front_poke(struct mr_front *f);

#endif
