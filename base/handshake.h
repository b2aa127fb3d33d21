/*
 * The opening of a frame connection, for both sides:
 *
 *   connects            accepts
 *   HELLO       ->                   its identity and a nonce
 *               <-      CHALLENGE    a nonce            } with a secret only
 *   PROOF       ->                                      }
 *               <-      PROOF                           }
 *               <-      WELCOME      the owner's answer
 *
 * A side that has not proven that it knows the secret is a stranger: its
 * payloads may have at most HANDSHAKE_PAYLOAD_BYTES, and a refusal names only
 * the supported versions. Without a secret (loopback only) HELLO is enough, and
 * a refusal gives the reason.
 */
#ifndef BASE_HANDSHAKE_H
#define BASE_HANDSHAKE_H

#include "base/frame_conn.h"
#include "base/secret.h"
#include "proto/message.h"

/* The longest payload of an opening frame; HELLO has at most 589 bytes. */
#define HANDSHAKE_PAYLOAD_BYTES 1024u
/* Time limit of an opening, in us. */
#define HANDSHAKE_PATIENCE_US 10000000
/* Most connections of strangers at one port; see strangers.h. */
#define HANDSHAKE_STRANGERS_MAX 64
/* Most log lines per second that strangers cause at one port. */
#define HANDSHAKE_LOG_PER_S 20

struct handshake {
    const struct secret *secret; /* borrowed; NULL = none required */
    bool challenged, proven;
    uint8_t digest[PROTO_PROOF_BYTES]; /* of the HELLO */
    uint8_t nonce[PROTO_NONCE_BYTES];  /* of the CHALLENGE */
    struct msg_hello hello;            /* the other side's, if it connected */
};

/* Why an opening is refused: code and reason; the other side gets the reason
 * only if `open`. */
struct handshake_refusal {
    uint16_t code;
    bool open;
    bool was_frame; /* it sent a frame that does not belong here */
    char why[MSG_TEXT_MAX];
};

/* handshake_connect(hs, secret, hello, conn): begins the opening: sends
 * `hello` with a nonce. Borrows secret. Returns 0, or -EIO: no random
 * numbers. */
[[nodiscard]] int handshake_connect(struct handshake *hs,
                                    const struct secret *secret,
                                    const struct msg_hello *hello,
                                    struct frame_conn *conn);

/* handshake_answer(hs, conn, h, payload, welcome, why): handles a frame before
 * WELCOME on the side that connected. Returns 1 with *welcome: open; 0: more
 * frames must follow; -EBADMSG or -EPROTO: malformed or out of place; -EACCES:
 * the other side is not trusted, reason in why. */
[[nodiscard]] int
handshake_answer(struct handshake *hs, struct frame_conn *conn,
                 const struct frame_header *h, const uint8_t *payload,
                 struct msg_welcome *welcome, char why[MSG_TEXT_MAX]);

/* handshake_accept(hs, conn, h, payload, refusal): handles a frame on the side
 * that accepted; hs starts as zero with its secret set. Returns 1: hs->hello is
 * proven, and the owner sends WELCOME or refuses; 0: more frames must follow;
 * -1 with *refusal: the owner logs it and calls handshake_refuse(). */
[[nodiscard]] int handshake_accept(struct handshake *hs,
                                   struct frame_conn *conn,
                                   const struct frame_header *h,
                                   const uint8_t *payload,
                                   struct handshake_refusal *refusal);

/* handshake_refuse(conn, refusal): sends ERROR, with the reason if
 * refusal->open, and ends the connection. */
void handshake_refuse(struct frame_conn *conn,
                      const struct handshake_refusal *refusal);

/* handshake_refused(conn, payload, len, by): handles ERROR from the other
 * side: fails the connection with `by`, as in "refused by the member", and the
 * ERROR's text. Returns 0 or -EBADMSG. */
[[nodiscard]] int handshake_refused(struct frame_conn *conn,
                                    const uint8_t *payload, size_t len,
                                    const char *by);

#endif
