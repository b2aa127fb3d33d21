/*
 * The engines that are wanted, and those that there are. Private to the files
 * of conductor/service.
 *
 *   An entry is wanted by one origin. It has one engine, or, with dns, one for
 *   each address of its host. fleet_set() says what an origin wants;
 *   fleet_place() makes an entry's engines those that it should have. There is
 *   no other way to start an engine, or to end one.
 *   What fleet_set() has made due is done in slices of TURN_US, so that a fleet
 *   that changes as a whole holds up nobody.
 *   An engine that is not wanted any more drains: it gets no request, and goes
 *   when it has none. A model goes with its last entry, engine and request.
 */
#ifndef CONDUCTOR_SERVICE_FLEET_FLEET_H
#define CONDUCTOR_SERVICE_FLEET_FLEET_H

#include "base/log.h"
#include "base/tls.h"
#include "conductor/front/json/text_buf.h"
#include "conductor/link/engine/model_list.h"
#include "conductor/link/engine/resolve.h"
#include "conductor/service/engine/engine.h"

struct fleet_entry;
struct fleet_file;
struct models;

enum fleet_origin { FLEET_CONFIGURATION, FLEET_FILE, FLEET_ADMIN };

/* "configuration", "file", "admin"; static. */
const char *fleet_origin_name(enum fleet_origin origin);

/* Called when an engine has told its model: it has this configuration in place
 * of the wanted one. Returns 0 or a negative errno with a message. */
typedef int scout_found(struct fleet_entry *entry,
                        const struct engine_config *config,
                        const struct engine_config *wanted,
                        char err[CONFIG_ERROR_MAX]);

/* Asks an engine of an entry that names no model which one it has. */
struct scout {
    TAILQ_ENTRY(scout) of_entry;
    struct fleet_entry *of;
    struct engine_config wanted;
    scout_found *found_model;
    char authorization[ENGINE_AUTHORIZATION_BYTES];
    struct upstream *upstream;
    struct exchange *exchange; /* NULL: none under way */
    struct event *timer;
    struct text_buf answer;
    int status;
    struct model_list found; /* if has_found */
    bool has_found;
    bool told; /* the log has it that something is wrong */
    unsigned jitter;
};

struct fleet_entry {
    TAILQ_ENTRY(fleet_entry) entry;
    struct fleet *fleet;
    struct engine_config config;
    enum fleet_origin origin;
    bool left;                 /* not wanted: it goes with its last engine */
    bool due;                  /* its engines are still to be begun, or ended */
    bool kept;                 /* while fleet_set() compares */
    struct resolver *resolver; /* with dns */
    bool looks_fail;           /* the log has it */
    bool has_none;             /* its name has no address */
    bool lacks_some;           /* of its engines, and the log has it */
    struct engine_row engines;
    TAILQ_HEAD(, scout) scouts;
};

struct fleet {
    struct models *models;
    struct event *tick;
    struct event *work; /* something is due */
    TAILQ_HEAD(, fleet_entry) entries;
    size_t n_wanted;         /* entries that have not left */
    size_t n_leaving;        /* engines that drain */
    struct fleet_file *file; /* NULL: none is watched */
    uint32_t ticks;
    struct log_rate lines; /* of what fails again and again */
    uint64_t lookups_failed, readings_failed;
    struct engine_pair shared_url; /* that the log has told last */
};

/* How many host names have no address. */
size_t fleet_empty_names(const struct fleet *fleet);

/* fleet_start(models): makes the engines of the configuration. Returns 0 or a
 * negative errno with a message; call fleet_stop() either way. */
[[nodiscard]] int fleet_start(struct models *models,
                              char err[CONFIG_ERROR_MAX]);
void fleet_stop(struct models *models);

/*
 * set.c: an origin wants these entries, of engines_check(), and no
 * others. What is unchanged goes on; the rest follows in the loop's next turns,
 * where an engine that cannot be started is logged and tried again. Returns 0;
 * or -EINVAL or -ENOMEM with a message: nothing has changed. O(n log n).
 */
[[nodiscard]] int fleet_set(struct fleet *fleet, enum fleet_origin origin,
                            const struct engine_list *list,
                            char err[CONFIG_ERROR_MAX]);

/* set.c: whether the n configurations, of engines_check(), can be wanted
 * beside all entries but those of the origin `instead_of`, if it is one.
 * Returns 0 or a negative errno with a message, which begins with the place in
 * `path`, unless that is NULL. */
[[nodiscard]] int fleet_check(struct fleet *fleet, int instead_of,
                              const struct engine_config *list, size_t n,
                              const char *path, char err[CONFIG_ERROR_MAX]);

/* Has the next turns of the loop do what fleet_set() has made due. */
void fleet_poke(const struct fleet *fleet);

/* An entry of that origin, not among the others yet, which fleet_append() does;
 * or NULL. It is not wanted any more: its engines are still to be ended. */
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

/* The entry of that name that is wanted, or NULL. */
struct fleet_entry *fleet_find(const struct fleet *fleet, const char *name);

/* Whether an entry that is wanted, or an engine, also one that drains, has that
 * name. */
bool fleet_has_name(const struct fleet *fleet, const char *name);

/* An entry is not wanted any more: it and its engines go, perhaps later. */
void fleet_drop(struct fleet_entry *entry);

/* place.c: gives an entry the n engines of `wanted`, by configurations
 * with other names and addresses than its own. Returns 0; or a negative errno
 * with a message, where the first of those that did not start is named. */
[[nodiscard]] int fleet_place(struct fleet_entry *entry,
                              const struct engine_config *wanted, size_t n,
                              char err[CONFIG_ERROR_MAX]);

/* tls.c: what an engine of https trusts, shared with the others that
 * trust the same. Returns it, of which the caller is an owner, or NULL with a
 * message. */
[[nodiscard]] struct tls *fleet_tls(const struct fleet *fleet,
                                    const struct engine_config *config,
                                    char err[CONFIG_ERROR_MAX]);

/* Whether requests for a native model `model` may be for an engine; then *out,
 * but for `at`, says so. */
bool fleet_is_native(const struct engine_config *c, const char *model,
                     struct engine_clash *out);

/* A configuration that cannot be served beside what is served already: true,
 * with *out saying why. */
bool fleet_misfits(const struct fleet *fleet, const struct engine_config *c,
                   struct engine_clash *out);

/* Frees engines that have drained, and entries that are not wanted any more.
 * Stops at until_us; returns whether all are done, else call it again. */
bool fleet_reap(struct fleet *fleet, int64_t until_us);

/* Asks engines anew that now have another model than they told. */
void fleet_look_for_models(struct fleet *fleet);

/* dns.c: begins to look up the entry's host; its engines follow. Returns
 * 0 or -ENOMEM. */
[[nodiscard]] int fleet_resolve(struct fleet_entry *entry);

/* scout.c: begins to ask, for an entry, and tells `found` what was told,
 * again and again until it returns 0; scout_free() takes it out, too. Returns
 * 0 or a negative errno with a message. */
[[nodiscard]] int scout_new(struct fleet_entry *of,
                            const struct engine_config *wanted,
                            scout_found *found, char err[CONFIG_ERROR_MAX]);
void scout_free(struct scout *scout);

/* file.c, in order: reads engines_file, if the configuration has one, and
 * watches it from then on; 0, or a negative errno with a message. Begins to
 * read it again if it has changed. Takes over what was read. Stops watching. */
[[nodiscard]] int fleet_file_start(struct fleet *fleet,
                                   char err[CONFIG_ERROR_MAX]);
void fleet_file_look(struct fleet *fleet);
void fleet_file_take(struct fleet *fleet);
void fleet_file_stop(struct fleet *fleet);

/* Reads such a file into *out, owned by the caller, and checks its engines, but
 * not beside others. Returns 0 or a negative errno with a message. Blocks; may
 * be called from any thread. */
[[nodiscard]] int fleet_file_read(const char *path, struct engine_list *out,
                                  char err[CONFIG_ERROR_MAX]);

/* Writes why the file was refused, behind the name of the option. Returns
 * -EINVAL. */
int fleet_file_say(char err[CONFIG_ERROR_MAX], const char *why);

#endif
