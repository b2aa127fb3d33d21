/* Makes pack and unpack functions from field functions. Only for proto/. */
#ifndef PROTO_FIELDS_H
#define PROTO_FIELDS_H

#include <string.h>

#include "proto/codec.h"
#include "proto/message.h"

/* Makes name_pack() and name_unpack() from name_fields(), which needs a
 * non-const message, so packing uses a copy. */
#define MESSAGE(name, type)                                            \
    void name##_pack(struct wire_buf *buf, uint64_t request_id,        \
                     const struct name *m)                             \
    {                                                                  \
        struct codec c = codec_writer(buf);                            \
        struct name copy = *m;                                         \
        size_t at = frame_begin(buf, type, request_id);                \
                                                                       \
        name##_fields(&c, &copy);                                      \
        frame_end(buf, at);                                            \
    }                                                                  \
    int name##_unpack(const void *payload, size_t len, struct name *m) \
    {                                                                  \
        struct codec c = codec_reader(payload, len);                   \
                                                                       \
        memset(m, 0, sizeof(*m));                                      \
        name##_fields(&c, m);                                          \
        return codec_end(&c);                                          \
    }

/* The fields of PREFILL, also the last part of PREFILL_GROUP. */
void msg_prefill_fields(struct codec *c, struct msg_prefill *m);

#endif
