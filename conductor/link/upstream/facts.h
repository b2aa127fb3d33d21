/*
 * Reads what an engine tells of itself, for entries of the kind "auto": its
 * kind by its /v1/models, its version, and by its /server_info where it
 * publishes KV events. Pure.
 */
#ifndef CONDUCTOR_LINK_UPSTREAM_FACTS_H
#define CONDUCTOR_LINK_UPSTREAM_FACTS_H

#include "conductor/config/engines.h"

struct engine_facts {
    uint8_t kind;      /* enum engine_kind, not ENGINE_AUTO */
    char version[32];  /* "" = not told */
    int64_t dp_ranks;  /* data-parallel ranks; 0 = one, or not told */
    int64_t dp_first;  /* the first of them; the ports below include it */
    bool events_off;   /* it says that it publishes no KV events */
    bool events_reach; /* it connects to kv_events, instead of listening */
    char kv_events[ENGINE_PATH_MAX]; /* tcp://HOST:PORT; "" = not told */
    char kv_replay[ENGINE_PATH_MAX]; /* likewise */
    char kv_topic[ENGINE_NAME_MAX];
};

/* Resets the facts of an engine: none is known, and its kind is ENGINE_OPENAI.
 */
void facts_begin(struct engine_facts *facts);

/* Take the n bytes of an answer, borrowed: of /v1/models, /version and
 * /server_info?config_format=json. Text that is not what it should be is
 * ignored.
 *   host  of the engine's URL: the one host of its addresses. */
void facts_take_models(struct engine_facts *facts, const char *text, size_t n);
void facts_take_version(struct engine_facts *facts, const char *text, size_t n);
void facts_take_server(struct engine_facts *facts, const char *host,
                       const char *text, size_t n);

/* Writes the facts into an entry of the kind "auto"; fields that the entry has
 * keep their values. */
void facts_apply(const struct engine_facts *facts, struct engine_config *entry);

#endif
