/* See facts.h. */
#include "conductor/link/upstream/facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/address.h"

/* vLLM's and SGLang's own, if their configuration names none. */
#define EVENTS_ENDPOINT "tcp://*:5557"
/* Ranks of one server; each takes a connection for events and one for replay.
 */
#define RANKS_MAX 16

void facts_begin(struct engine_facts *facts)
{
    *facts = (struct engine_facts){.kind = ENGINE_OPENAI};
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Copies printable ASCII without blanks that fits; else writes "". */
static void copy(char *to, size_t size, const char *text)
{
    size_t n = text ? strlen(text) : 0;

    *to = '\0';
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return;
    if (n > 0 && n < size)
        memcpy(to, text, n + 1);
}

void facts_take_models(struct engine_facts *facts, const char *text, size_t n)
{
    json_t *json = json_loadb(text, n, 0, NULL);
    const char *owner =
        text_of(json_array_get(json_object_get(json, "data"), 0), "owned_by");

    for (uint8_t kind = 0; owner && kind < ENGINE_AUTO; kind++)
        if (strcmp(owner, engine_kind_name(kind)) == 0)
            facts->kind = kind;
    json_decref(json);
}

void facts_take_version(struct engine_facts *facts, const char *text, size_t n)
{
    json_t *json = json_loadb(text, n, 0, NULL);

    copy(facts->version, sizeof(facts->version), text_of(json, "version"));
    json_decref(json);
}

/* Whether ZMQ binds the endpoint, as vLLM and SGLang decide it. */
static bool is_bound(const char *endpoint)
{
    return strchr(endpoint, '*') || strstr(endpoint, "::");
}

/* Writes tcp://HOST:PORT with the port of `endpoint`, if it has one, plus
 * `first`: an engine tells nothing of other hosts than its own. */
static void copy_endpoint(char to[ENGINE_PATH_MAX], const char *endpoint,
                          const char *host, int64_t first)
{
    const char *port = endpoint ? strrchr(endpoint, ':') : NULL;
    const char *bracket = strchr(host, ':') ? "[" : "";
    char text[ENGINE_PATH_MAX];
    struct address at;

    if (!port || strncmp(endpoint, "tcp://", 6) != 0)
        return;
    snprintf(text, sizeof(text), "tcp://%s%.200s%s%.8s", bracket, host,
             *bracket ? "]" : "", port);
    if (address_parse(text + 6, &at) || at.port == 0 ||
        at.port + first > UINT16_MAX)
        return;
    snprintf(strrchr(text, ':'), 8, ":%u", (unsigned)(at.port + first));
    copy(to, ENGINE_PATH_MAX, text);
}

/* The member, or the object in the text of the member; owned by the caller. */
static json_t *object_of(const json_t *parent, const char *key)
{
    json_t *member = json_object_get(parent, key);

    return json_is_string(member)
               ? json_loads(json_string_value(member), 0, NULL)
               : json_incref(member);
}

static void take_events(struct engine_facts *facts, const char *host,
                        const json_t *events)
{
    const char *publisher = text_of(events, "publisher");
    const char *endpoint = text_of(events, "endpoint");

    facts->events_off =
        !json_is_object(events) ||
        json_is_false(json_object_get(events, "enable_kv_cache_events")) ||
        !publisher || strcmp(publisher, "zmq") != 0;
    if (facts->events_off)
        return;
    if (!endpoint)
        endpoint = EVENTS_ENDPOINT;
    facts->events_reach = !is_bound(endpoint);
    copy_endpoint(facts->kv_events, endpoint, host, facts->dp_first);
    copy_endpoint(facts->kv_replay, text_of(events, "replay_endpoint"), host,
                  facts->dp_first);
    copy(facts->kv_topic, sizeof(facts->kv_topic), text_of(events, "topic"));
}

static json_int_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Reads the data-parallel ranks of the server: with vLLM's external or hybrid
 * load balancing it has not all, but data_parallel_size_local from its own. */
static void take_ranks(struct engine_facts *facts, const json_t *server)
{
    const json_t *parallel = json_object_get(
        json_object_get(server, "vllm_config"), "parallel_config");
    bool some =
        json_is_true(json_object_get(parallel, "data_parallel_external_lb")) ||
        json_is_true(json_object_get(parallel, "data_parallel_hybrid_lb"));
    json_int_t ranks =
        !parallel ? number_of(server, "dp_size")
                  : number_of(parallel, some ? "data_parallel_size_local"
                                             : "data_parallel_size");
    json_int_t first = some ? number_of(parallel, "data_parallel_rank") : 0;

    if (ranks > 1 && ranks <= RANKS_MAX)
        facts->dp_ranks = ranks;
    if (first > 0 && first <= UINT16_MAX)
        facts->dp_first = first;
}

void facts_take_server(struct engine_facts *facts, const char *host,
                       const char *text, size_t n)
{
    json_t *json = json_loadb(text, n, 0, NULL);
    const json_t *vllm = json_object_get(json, "vllm_config");
    const json_t *args = json_is_object(vllm) ? vllm : json;
    json_t *events = object_of(args, "kv_events_config");

    take_ranks(facts, json);
    if (json_object_get(args, "kv_events_config"))
        take_events(facts, host, events);
    if (!*facts->version)
        copy(facts->version, sizeof(facts->version), text_of(json, "version"));
    json_decref(events);
    json_decref(json);
}

/* Returns whether an address has no port for each of that many ranks. */
static bool lacks_ports(const char *endpoint, int64_t ranks)
{
    struct address at;

    return !*endpoint || address_parse(endpoint + 6, &at) ||
           at.port + (ranks > 1 ? ranks : 1) > 65536;
}

/* Returns whether the ports of two addresses, of that many ranks, overlap, or
 * there are none for b. */
static bool meet(const char *a, const char *b, int64_t ranks)
{
    struct address x, y;

    return lacks_ports(b, ranks) || address_parse(a + 6, &x) ||
           address_parse(b + 6, &y) ||
           llabs((long long)x.port - y.port) < (ranks > 1 ? ranks : 1);
}

void facts_apply(const struct engine_facts *facts, struct engine_config *entry)
{
    entry->kind = facts->kind;
    engine_config_paths(entry);
    if (*entry->kv_events || !*facts->kv_events || facts->events_reach ||
        entry->index == ENGINE_INDEX_PREDICTED)
        return;
    if (entry->dp_rank < 0 && entry->dp_ranks == 0)
        entry->dp_ranks = facts->dp_ranks;
    if (lacks_ports(facts->kv_events, entry->dp_ranks))
        return;
    memcpy(entry->kv_events, facts->kv_events, sizeof(entry->kv_events));
    memcpy(entry->kv_topic, facts->kv_topic, sizeof(entry->kv_topic));
    if (!meet(facts->kv_events, facts->kv_replay, entry->dp_ranks))
        memcpy(entry->kv_replay, facts->kv_replay, sizeof(entry->kv_replay));
}
