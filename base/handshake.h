/*
 * The opening of a connection that speaks frames, for both of its sides:
 *
 *   connects            accepts
 *   HELLO       ->                   who it is, and a nonce
 *               <-      CHALLENGE    a nonce            } with a secret only
 *   PROOF       ->                                      }
 *               <-      PROOF                           }
 *               <-      WELCOME      the owner's answer
 *
 * Until the other side has proven that it knows the secret it is a stranger:
 * its frames may have at most HANDSHAKE_PAYLOAD_BYTES, and it learns only that
 * it is refused, and which versions are spoken here. Without a secret, which is
 * allowed on loopback only, HELLO is enough and a refusal says why.
 */
#ifndef BASE_HANDSHAKE_H
#define BASE_HANDSHAKE_H

#include "base/frame_conn.h"
#include "base/secret.h"
#include "proto/message.h"

/* The longest payload of an opening frame; HELLO has at most 589 bytes. */
#define HANDSHAKE_PAYLOAD_BYTES 1024u
/* How long an opening may take. */
#define HANDSHAKE_PATIENCE_US 10000000
/* Connections of strangers that one port keeps at a time; see strangers.h. */
#define HANDSHAKE_STRANGERS_MAX 64
/* The most log lines that strangers cause at a port in a second. */
#define HANDSHAKE_LOG_PER_S 20

struct handshake {
    const struct secret *secret; /* borrowed; NULL: none is asked for */
    bool challenged, proven;
    uint8_t digest[PROTO_PROOF_BYTES]; /* of the HELLO */
    uint8_t nonce[PROTO_NONCE_BYTES];  /* of the CHALLENGE */
    struct msg_hello hello;            /* of the other side, if it connected */
};

/* Why an opening ends: the code for the other side, and the reason, which goes
 * to the other side only if `open`. */
struct handshake_refusal {
    uint16_t code;
    bool open;
    bool was_frame; /* it sent something that is not an opening */
    char why[MSG_TEXT_MAX];
};

/* handshake_connect(hs, secret, hello, conn): begins it: sends `hello` with a
 * nonce. Borrows secret. Returns 0, or -EIO: no random numbers. */
[[nodiscard]] int handshake_connect(struct handshake *hs,
                                    const struct secret *secret,
                                    const struct msg_hello *hello,
                                    struct frame_conn *conn);

/* handshake_answer(hs, conn, h, payload, welcome, why): takes a frame before
 * WELCOME on the side that connected. Returns 1 with *welcome: it is open; 0:
 * more has to come; -EBADMSG or -EPROTO: malformed or out of place; -EACCES:
 * the other side is not trusted, with the reason in why. */
[[nodiscard]] int
handshake_answer(struct handshake *hs, struct frame_conn *conn,
                 const struct frame_header *h, const uint8_t *payload,
                 struct msg_welcome *welcome, char why[MSG_TEXT_MAX]);

/* handshake_accept(hs, conn, h, payload, refusal): takes a frame on the side
 * that accepted; hs is zero but for its secret. Returns 1: hs->hello is
 * proven, and the owner sends WELCOME or refuses; 0: more has to come; -1 with
 * *refusal: the owner logs it and calls handshake_refuse(). */
[[nodiscard]] int handshake_accept(struct handshake *hs,
                                   struct frame_conn *conn,
                                   const struct frame_header *h,
                                   const uint8_t *payload,
                                   struct handshake_refusal *refusal);

/* handshake_refuse(conn, refusal): sends ERROR, with the reason if it may be
 * told, and ends the connection. */
void handshake_refuse(struct frame_conn *conn,
                      const struct handshake_refusal *refusal);

/* handshake_refused(conn, payload, len, by): the other side has sent an ERROR:
 * fails the connection with `by`, which says who refuses whom, and what the
 * ERROR says. Returns 0, or -EBADMSG. */
[[nodiscard]] int handshake_refused(struct frame_conn *conn,
                                    const uint8_t *payload, size_t len,
                                    const char *by);

#endif
