/*
 * The shared secret of a cluster's programs, from a file, and the proof of
 * knowing it. A proof is HMAC-SHA256 with the secret over the proving side, the
 * CHALLENGE's nonce, and the digest of the HELLO, which holds the connecting
 * side's identity and nonce. So no proof fits another connection, the other
 * direction, or another HELLO.
 */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

#define SECRET_MIN_BYTES 16u
#define SECRET_MAX_BYTES 4096u

struct secret;

/* The proving side. */
enum secret_side { SECRET_CONNECTS, SECRET_ACCEPTS };

/* secret_load(path, out, err, err_bytes): reads the secret in the file at
 * path, without trailing blanks and line ends. Refuses a file that is not
 * regular (without blocking) or that others than its owner and group may read,
 * and a secret shorter than SECRET_MIN_BYTES. An empty path means no secret:
 * *out is NULL. Returns 0 with *out owned, or a negative errno with the reason
 * in err. */
[[nodiscard]] int secret_load(const char *path, struct secret **out, char *err,
                              size_t err_bytes);

/* secret_free(s): overwrites and frees it. NULL is a no-op. */
void secret_free(struct secret *s);

/* secret_is(s, text, n): returns whether the n bytes are the secret. Constant
 * time. */
bool secret_is(const struct secret *s, const void *text, size_t n);

/* secret_digest(payload, len, out): computes SHA-256 of a HELLO's payload. */
[[nodiscard]] int secret_digest(const void *payload, size_t len,
                                uint8_t out[PROTO_PROOF_BYTES]);

/* secret_prove(s, side, nonce, digest, out): computes the proof of `side`, for
 * the CHALLENGE's nonce and the HELLO's digest. Returns 0, or -EIO if the
 * library fails. */
[[nodiscard]] int secret_prove(const struct secret *s, enum secret_side side,
                               const uint8_t nonce[PROTO_NONCE_BYTES],
                               const uint8_t digest[PROTO_PROOF_BYTES],
                               uint8_t out[PROTO_PROOF_BYTES]);

/* secret_proves(s, side, nonce, digest, proof): returns whether `proof` is the
 * proof that secret_prove() computes. Constant time. */
bool secret_proves(const struct secret *s, enum secret_side side,
                   const uint8_t nonce[PROTO_NONCE_BYTES],
                   const uint8_t digest[PROTO_PROOF_BYTES],
                   const uint8_t proof[PROTO_PROOF_BYTES]);

#endif
