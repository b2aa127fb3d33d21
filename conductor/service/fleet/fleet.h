/*
 * The entries of the engine list, and the engines started for them. Private to
 * the files of conductor/service.
 *
 *   An entry belongs to one origin. It has one engine, or, with dns, one for
 *   each address of its host. fleet_set() replaces the entries of an origin;
 *   fleet_place() starts and retires an entry's engines, and nothing else does.
 *   The loop's turns do this in slices of TURN_US, so that a large change
 *   delays no request.
 *   An engine without an entry drains: it gets no new requests, and is freed
 *   after its last one. A model is freed with its last entry, engine and
 *   request.
 */
#ifndef CONDUCTOR_SERVICE_FLEET_FLEET_H
#define CONDUCTOR_SERVICE_FLEET_FLEET_H

#include "base/log.h"
#include "base/loop/loop.h"
#include "base/tls.h"
#include "conductor/json/text_buf.h"
#include "conductor/link/upstream/facts.h"
#include "conductor/link/upstream/model_list.h"
#include "conductor/link/upstream/report.h"
#include "conductor/link/upstream/resolve.h"
#include "conductor/service/engine/engine.h"

struct fleet_entry;
struct fleet_file;
struct models;

enum fleet_origin { FLEET_CONFIGURATION, FLEET_FILE, FLEET_ADMIN };

/* Returns "configuration", "file" or "admin"; static. */
const char *fleet_origin_name(enum fleet_origin origin);

/* Called when an engine has reported its models: `config` is `wanted` with
 * these filled in. Returns 0 or a negative errno with a message. */
typedef int scout_found(struct fleet_entry *entry,
                        const struct engine_config *config,
                        const struct engine_config *wanted,
                        char err[CONFIG_ERROR_MAX]);

/* Asks an engine for its models, where its entry names none, and for what else
 * it tells of itself, where its entry has the kind "auto". */
struct scout {
    TAILQ_ENTRY(scout) of_entry;
    struct fleet_entry *of;
    struct engine_config wanted;
    scout_found *found_model;
    char authorization[ENGINE_AUTHORIZATION_BYTES];
    struct upstream *upstream;
    struct exchange *exchange; /* NULL = no question in flight */
    struct loop_timer timer;
    struct text_buf answer;
    int status;
    size_t question;         /* index in scout.c: questions */
    struct model_list found; /* valid if has_found */
    struct engine_facts facts;
    struct report_scan scan; /* of its /metrics */
    size_t n_bytes;          /* of the present answer */
    unsigned n_late;         /* questions without an answer in time */
    bool has_found;
    char told[96];        /* the last fault that was logged */
    char last_error[192]; /* its reason, or "" */
    unsigned jitter;
};

struct fleet_entry {
    TAILQ_ENTRY(fleet_entry) entry;
    struct fleet *fleet;
    struct engine_config config;
    enum fleet_origin origin;
    bool left; /* no longer wanted: freed with its last engine */
    bool due;  /* its engines must still be started, or retired */
    bool kept; /* scratch of fleet_set(): unchanged */
    struct resolver *resolver; /* only with dns */
    bool looks_fail;           /* lookup fails, and the log says so */
    bool has_none;             /* the lookup returned no address */
    bool lacks_some; /* some engines did not start, and the log says so */
    double start_s;  /* without dns: the latest start that its server told */
    struct engine_row engines;
    TAILQ_HEAD(, scout) scouts;
};

struct fleet {
    struct models *models;
    struct loop_timer tick;
    struct loop_timer work; /* something is due */
    TAILQ_HEAD(, fleet_entry) entries;
    size_t n_wanted;         /* entries still wanted */
    size_t n_leaving;        /* engines that are draining */
    struct fleet_file *file; /* NULL = no engines_file */
    uint32_t ticks;
    struct log_rate lines; /* limits log lines about repeated failures */
    uint64_t lookups_failed, readings_failed;
    struct engine_pair shared_url; /* the pair logged last */
};

/* Returns the number of entries whose host name has no address. */
size_t fleet_empty_names(const struct fleet *fleet);

/* fleet_start(models): starts the engines of the configuration. Returns 0 or a
 * negative errno with a message; call fleet_stop() either way. */
[[nodiscard]] int fleet_start(struct models *models,
                              char err[CONFIG_ERROR_MAX]);
void fleet_stop(struct models *models);

/*
 * set.c: replaces the entries of an origin by this list, which has passed
 * engines_check(). Unchanged engines continue; others start and end in the
 * loop's next turns, where a failed start is logged and repeated. Returns 0; or
 * -EINVAL or -ENOMEM with a message, and nothing changed. O(n log n).
 */
[[nodiscard]] int fleet_set(struct fleet *fleet, enum fleet_origin origin,
                            const struct engine_list *list,
                            char err[CONFIG_ERROR_MAX]);

/* set.c: checks that the n configurations, which have passed engines_check(),
 * fit beside all entries but those of origin `instead_of` (-1 = beside all).
 * Returns 0 or a negative errno with a message, which begins with "PATH[at]."
 * (path NULL = without it). */
[[nodiscard]] int fleet_check(struct fleet *fleet, int instead_of,
                              const struct engine_config *list, size_t n,
                              const char *path, char err[CONFIG_ERROR_MAX]);

/* Makes the loop's next turns start and retire the engines of due entries. */
void fleet_poke(struct fleet *fleet);

/* fleet_entry_new() returns an entry that is in no list yet, owned by the
 * caller, or NULL. fleet_append() adds it to the list, which then owns it.
 * fleet_leave() marks it as no longer wanted; its engines must still be
 * retired. */
[[nodiscard]] struct fleet_entry *
fleet_entry_new(struct fleet *fleet, enum fleet_origin origin,
                const struct engine_config *config);
void fleet_append(struct fleet_entry *entry);
void fleet_leave(struct fleet_entry *entry);

/* Adds an entry for an administrator. Returns 0; -EINVAL with a message that
 * names the field. */
[[nodiscard]] int fleet_add(struct fleet *fleet,
                            const struct engine_config *config,
                            char err[CONFIG_ERROR_MAX]);

/* Returns the wanted entry of this name, or NULL. */
struct fleet_entry *fleet_find(const struct fleet *fleet, const char *name);

/* Returns whether a wanted entry or any engine has this name. */
bool fleet_has_name(const struct fleet *fleet, const char *name);

/* Removes an entry: it is freed once its engines have drained. */
void fleet_drop(struct fleet_entry *entry);

/* place.c: makes the n configurations of `wanted` the entry's engines; with dns
 * their names and addresses differ from the entry's. Returns 0; or a negative
 * errno with a message about the first one that did not start. */
[[nodiscard]] int fleet_place(struct fleet_entry *entry,
                              const struct engine_config *wanted, size_t n,
                              char err[CONFIG_ERROR_MAX]);

/* tls.c: returns the TLS settings of an https engine, one object for all
 * engines that trust the same CAs: a reference, released by the caller with
 * tls_free(), or NULL with a message. */
[[nodiscard]] struct tls *fleet_tls(const struct fleet *fleet,
                                    const struct engine_config *config,
                                    char err[CONFIG_ERROR_MAX]);

/* Returns whether an engine of `c` would serve `model`, the native workers'
 * model; if so, fills in *out, except `at`. */
bool fleet_is_native(const struct engine_config *c, const char *model,
                     struct engine_clash *out);

/* Returns whether a configuration clashes with the models and workers served
 * now; if so, fills in *out, except `at`. */
bool fleet_misfits(const struct fleet *fleet, const struct engine_config *c,
                   struct engine_clash *out);

/* Frees drained engines, and unwanted entries without engines. Stops at
 * until_us (loop_now_us()). Returns whether all were looked at. */
bool fleet_reap(struct fleet *fleet, int64_t until_us);

/* Asks an engine for its models again that reports other ones than when it
 * joined, and retires it; or, of the kind "auto", that was restarted, which
 * works on until it has answered. */
void fleet_look_for_models(struct fleet *fleet);

/* Retires the entry's engine of this configuration, which has answered a scout.
 * Returns whether there was one. */
bool fleet_make_way(struct fleet_entry *entry,
                    const struct engine_config *wanted);

/* dns.c: begins to look up the entry's host; each answer sets its engines.
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int fleet_resolve(struct fleet_entry *entry);

/* scout.c: begins to ask an engine of an entry for its models, and calls
 * `found` with each answer until it returns 0. Returns 0 or a negative errno
 * with a message. scout_free() also removes the scout from its entry. */
[[nodiscard]] int scout_new(struct fleet_entry *of,
                            const struct engine_config *wanted,
                            scout_found *found, char err[CONFIG_ERROR_MAX]);
void scout_free(struct scout *scout);

/* file.c: fleet_file_start() reads engines_file, if the configuration has one,
 * and watches it; returns 0 or a negative errno with a message. _look() begins
 * to read it again if it has changed, on a thread. _take() applies what the
 * thread has read. _stop() ends the watch. */
[[nodiscard]] int fleet_file_start(struct fleet *fleet,
                                   char err[CONFIG_ERROR_MAX]);
void fleet_file_look(struct fleet *fleet);
void fleet_file_take(struct fleet *fleet);
void fleet_file_stop(struct fleet *fleet);

/* Reads a file of engines into *out, owned by the caller, and checks it by
 * itself, without the other entries. Returns 0 or a negative errno with a
 * message. Blocks; may be called from any thread. */
[[nodiscard]] int fleet_file_read(const char *path, struct engine_list *out,
                                  char err[CONFIG_ERROR_MAX]);

/* Writes "engines_file: " and `why` to err. Returns -EINVAL. */
int fleet_file_say(char err[CONFIG_ERROR_MAX], const char *why);

#endif
