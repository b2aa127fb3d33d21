/* Shared by the endpoints of the KV-indexer API. */
#ifndef CONDUCTOR_FRONT_GATEWAY_STATE_H
#define CONDUCTOR_FRONT_GATEWAY_STATE_H

#include "conductor/front/gateway/packed.h"
#include "conductor/front/gateway/question.h"
#include "conductor/front/internal.h"
#include "conductor/service/ticket/gateway.h"

#define WHO_TENANT "default"

/* Instance, tenant and rank of an engine: from its name INSTANCE|TENANT|RANK if
 * it was registered, else its name is the instance. */
struct who {
    char instance[SERVICE_NAME_BYTES], tenant[SERVICE_NAME_BYTES];
    int rank;
    bool registered;
};

/* who_of(name, rank): takes a name apart; rank is the configured one. */
struct who who_of(const char *name, int rank);

/* who_name(q, name): writes the name of the question's engine. Returns 0;
 * -EINVAL with *error set. */
[[nodiscard]] int who_name(const struct question *q,
                           char name[SERVICE_NAME_BYTES],
                           struct openai_error *error);

/* Returns the question's tenant, or the default one. */
const char *who_tenant(const struct question *q);

/* Returns whether body (Content-Type) and answer (Accept) are msgpack. */
bool index_takes_msgpack(const struct front_call *call);
bool index_gives_msgpack(const struct front_call *call);

/* Reads the body. Returns 0; else it was answered. */
[[nodiscard]] int index_read(const struct front_call *call,
                             enum question_path path, struct question *q);

/* Begin an answer, whose bytes go to out; send it, and free them. */
struct packed index_begin(const struct front_call *call, struct text_buf *out);
void index_reply(const struct front_call *call, struct packed *p);

/* Answers with an error in the client's encoding. */
void index_refuse(const struct front_call *call,
                  const struct openai_error *error);

/* Returns the model's service; NULL: it was answered with an error. */
struct service *index_find(const struct front_call *call,
                           const struct question *q);

/* Writes tcp://host:port with `by` added to the port; other texts unchanged. */
void index_shift(const char *endpoint, int by, char out[QUESTION_TEXT_BYTES]);

#endif
