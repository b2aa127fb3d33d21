/* The opening of a connection, for both sides. */
#include "base/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/loop/loop.h"

static void send_proof(struct handshake *hs, struct frame_conn *conn,
                       enum secret_side side)
{
    struct msg_proof proof;
    struct wire_buf buf;

    if (secret_prove(hs->secret, side, hs->nonce, hs->digest, proof.mac)) {
        frame_conn_fail(conn, "cannot compute a proof");
        return;
    }
    wire_buf_init(&buf, 4096);
    msg_proof_pack(&buf, 0, &proof);
    frame_conn_send(conn, &buf);
    wire_buf_fini(&buf);
}

int handshake_connect(struct handshake *hs, const struct secret *secret,
                      const struct msg_hello *hello, struct frame_conn *conn)
{
    struct msg_hello m = *hello;
    struct wire_buf buf;

    *hs = (struct handshake){.secret = secret};
    loop_random_bytes(frame_conn_loop(conn), m.nonce, sizeof(m.nonce));
    wire_buf_init(&buf, 4096);
    msg_hello_pack(&buf, 0, &m);
    int rc = buf.failed
                 ? -EIO
                 : secret_digest(buf.data + FRAME_HEADER_BYTES,
                                 buf.len - FRAME_HEADER_BYTES, hs->digest);
    if (rc == 0)
        frame_conn_send(conn, &buf);
    wire_buf_fini(&buf);
    return rc;
}

static int on_challenge(struct handshake *hs, struct frame_conn *conn,
                        const uint8_t *payload, size_t len,
                        char why[MSG_TEXT_MAX])
{
    struct msg_challenge m;

    if (msg_challenge_unpack(payload, len, &m))
        return -EBADMSG;
    if (hs->challenged)
        return -EPROTO;
    if (!hs->secret)
        return error_say(why, MSG_TEXT_MAX, -EACCES,
                         "the other side requires a secret: give this side the "
                         "same --secret-file");
    hs->challenged = true;
    memcpy(hs->nonce, m.nonce, sizeof(hs->nonce));
    send_proof(hs, conn, SECRET_CONNECTS);
    return 0;
}

static int on_proof(struct handshake *hs, const uint8_t *payload, size_t len,
                    char why[MSG_TEXT_MAX])
{
    struct msg_proof m;

    if (msg_proof_unpack(payload, len, &m))
        return -EBADMSG;
    if (!hs->challenged || hs->proven)
        return -EPROTO;
    hs->proven =
        secret_proves(hs->secret, SECRET_ACCEPTS, hs->nonce, hs->digest, m.mac);
    if (hs->proven)
        return 0;
    return error_say(why, MSG_TEXT_MAX, -EACCES,
                     "its proof of the secret is wrong");
}

static int on_welcome(const struct handshake *hs, const uint8_t *payload,
                      size_t len, struct msg_welcome *welcome,
                      char why[MSG_TEXT_MAX])
{
    if (hs->secret && !hs->proven)
        return error_say(why, MSG_TEXT_MAX, -EACCES,
                         "the other side does not prove the secret: give it "
                         "the same secret file");
    if (msg_welcome_unpack(payload, len, welcome))
        return -EBADMSG;
    return welcome->version == PROTO_VERSION ? 1 : -EPROTO;
}

int handshake_answer(struct handshake *hs, struct frame_conn *conn,
                     const struct frame_header *h, const uint8_t *payload,
                     struct msg_welcome *welcome, char why[MSG_TEXT_MAX])
{
    switch (h->type) {
    case FRAME_CHALLENGE:
        return on_challenge(hs, conn, payload, h->length, why);
    case FRAME_PROOF:
        return on_proof(hs, payload, h->length, why);
    case FRAME_WELCOME:
        return on_welcome(hs, payload, h->length, welcome, why);
    default:
        return -EPROTO;
    }
}

#define refuse(r, error_code, of_frame, ...)                \
    ((r)->code = (error_code), (r)->was_frame = (of_frame), \
     error_say((r)->why, sizeof((r)->why), -1, __VA_ARGS__))

static void challenge(struct handshake *hs, struct frame_conn *conn)
{
    struct msg_challenge m;
    struct wire_buf buf;

    loop_random_bytes(frame_conn_loop(conn), hs->nonce, sizeof(hs->nonce));
    memcpy(m.nonce, hs->nonce, sizeof(m.nonce));
    wire_buf_init(&buf, 4096);
    msg_challenge_pack(&buf, 0, &m);
    frame_conn_send(conn, &buf);
    wire_buf_fini(&buf);
    hs->challenged = true;
}

static int on_hello(struct handshake *hs, struct frame_conn *conn,
                    const struct frame_header *h, const uint8_t *payload,
                    struct handshake_refusal *r)
{
    struct msg_hello *m = &hs->hello;

    if (h->type != FRAME_HELLO)
        return refuse(r, PROTO_E_BAD_FRAME, true,
                      "first frame is %s (type %u), not HELLO",
                      frame_type_name(h->type), h->type);
    if (msg_hello_unpack(payload, h->length, m))
        return refuse(r, PROTO_E_BAD_FRAME, true, "HELLO is malformed");
    if (proto_version_common(m) == 0) {
        r->open = true;
        return refuse(r, PROTO_E_VERSION, false,
                      "protocol version %u to %u: this side speaks version %u",
                      m->version_min, m->version_max, PROTO_VERSION);
    }
    if (!hs->secret)
        return 1;
    if (secret_digest(payload, h->length, hs->digest))
        return refuse(r, PROTO_E_INTERNAL, false, "cannot compute a digest");
    challenge(hs, conn);
    return 0;
}

int handshake_accept(struct handshake *hs, struct frame_conn *conn,
                     const struct frame_header *h, const uint8_t *payload,
                     struct handshake_refusal *refusal)
{
    struct msg_proof m;

    *refusal = (struct handshake_refusal){.open = !hs->secret};
    if (!hs->challenged)
        return on_hello(hs, conn, h, payload, refusal);
    if (h->type != FRAME_PROOF || msg_proof_unpack(payload, h->length, &m))
        return refuse(refusal, PROTO_E_BAD_FRAME, true,
                      "%s (type %u) in place of PROOF",
                      frame_type_name(h->type), h->type);
    if (!secret_proves(hs->secret, SECRET_CONNECTS, hs->nonce, hs->digest,
                       m.mac))
        return refuse(refusal, PROTO_E_REFUSED, false,
                      "its proof of the secret is wrong");
    hs->proven = true;
    send_proof(hs, conn, SECRET_ACCEPTS);
    return 1;
}

void handshake_refuse(struct frame_conn *conn,
                      const struct handshake_refusal *refusal)
{
    if (refusal->open)
        frame_conn_refuse(conn, refusal->code, refusal->why);
    else
        frame_conn_refuse(conn, PROTO_E_REFUSED,
                          "the refusing side's log says why");
}

int handshake_refused(struct frame_conn *conn, const uint8_t *payload,
                      size_t len, const char *by)
{
    struct msg_error m;
    char text[MSG_TEXT_MAX + 128];

    if (msg_error_unpack(payload, len, &m))
        return -EBADMSG;
    snprintf(text, sizeof(text), "%s (%s): %s", by, proto_code_name(m.code),
             m.text);
    frame_conn_fail(conn, text);
    return 0;
}
