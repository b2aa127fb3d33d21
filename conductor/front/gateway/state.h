/* What the endpoints of the KV-indexer API share. */
#ifndef CONDUCTOR_FRONT_GATEWAY_STATE_H
#define CONDUCTOR_FRONT_GATEWAY_STATE_H

#include "conductor/front/gateway/packed.h"
#include "conductor/front/gateway/question.h"
#include "conductor/front/internal.h"
#include "conductor/service/gateway/gateway.h"

#define WHO_TENANT "default"

/* Whose instance an engine is: INSTANCE|TENANT|RANK where it was registered,
 * else its name is the instance. */
struct who {
    char instance[SERVICE_NAME_BYTES], tenant[SERVICE_NAME_BYTES];
    int rank;
    bool registered;
};

/* who_of(name, rank): taken apart; rank is that of its configuration. */
struct who who_of(const char *name, int rank);

/* who_name(q, name): as question says. Returns 0; -EINVAL with *error set. */
[[nodiscard]] int who_name(const struct question *q,
                           char name[SERVICE_NAME_BYTES],
                           struct openai_error *error);

/* The tenant that the question names, or the usual one. */
const char *who_tenant(const struct question *q);

/* Whether body and answer are msgpack, by Content-Type and Accept. */
bool index_takes_msgpack(const struct front_call *call);
bool index_gives_msgpack(const struct front_call *call);

/* Reads the body. Returns 0; else the client was answered. */
[[nodiscard]] int index_read(const struct front_call *call,
                             enum question_path path, struct question *q);

/* Begins an answer, whose bytes are in out; sends it, and ends it. */
struct packed index_begin(const struct front_call *call, struct text_buf *out);
void index_reply(const struct front_call *call, struct packed *p);

/* Answers with an error in the client's encoding. */
void index_refuse(const struct front_call *call,
                  const struct openai_error *error);

/* The model's service, and the adapter that its name may be; NULL: the client
 * was answered. */
struct service *index_find(const struct front_call *call,
                           const struct question *q);

/* Writes tcp://host:port with port + by, as far as it is one. */
void index_shift(const char *endpoint, int by, char out[QUESTION_TEXT_BYTES]);

#endif
