/* Shared by the files of this folder; private to them. The table of the options
 * is in table.c. */
#ifndef CONDUCTOR_CONFIG_INTERNAL_H
#define CONDUCTOR_CONFIG_INTERNAL_H

#include "base/options.h"
#include "conductor/config/config.h"

#define CONFIG_LISTS 3 /* engines, stores, worker_costs */
#define CONFIG_OPTIONS_MAX (80 + CONFIG_LISTS)

struct fields;
struct fields_object;
struct policy_settings;

/* Returns the table of the values in *c; fills and borrows specs. */
struct option_table config_table(struct config *c,
                                 struct option_spec specs[CONFIG_OPTIONS_MAX]);

/* Returns whether the option's value is a string of the JSON, else a number. */
bool config_is_text(const struct option_spec *o);

/* Returns whether it is a number of 0 or 1, in the JSON also false or true. */
bool config_is_switch(const struct option_spec *o);

/* Returns whether it is policy_options, an object of the JSON. */
bool config_is_settings(const struct option_spec *o);

/* The names of the kinds of engines, by enum engine_kind; NULL ends them. */
extern const char *const engine_kinds[];

/* Adds a name to the names of struct config_changes. */
void config_names_add(char list[CONFIG_NAMES_MAX], const char *name);

/* Returns in words what the option's value must be; static. */
const char *config_type_name(const struct option_spec *o);

/* Parses the text of policy_options. Returns 0, or a negative errno with a
 * message in error (size bytes). */
[[nodiscard]] int config_settings(const char *text,
                                  struct policy_settings *settings, char *error,
                                  size_t size);

/*
 * Check a value. Return NULL, or what it must be, in words; static.
 *   address   HOST:PORT
 *   optional  likewise, or "": nowhere
 *   header    the name of a header without another meaning, or "":
 *             none
 *   name      text that logs, JSON and metrics can show
 *   otlp      http URL of a receiver of traces, or "": none
 *   origins   of pages, separated by commas and blanks; or "*"
 *   tenant_header  as header, or authorization
 */
const char *option_check_address(const char *text);
const char *option_check_optional(const char *text);
const char *option_check_header(const char *text);
const char *option_check_name(const char *text);
const char *option_check_otlp(const char *text);
const char *option_check_origins(const char *text);
const char *option_check_tenant_header(const char *text);

/*
 * Checks the address tcp://HOST:PORT under `key`, and parses it into *out. Each
 * rank has a port: for rank r PORT plus r. Errors go to f.
 *   own   an address of the conductor, where HOST may be *.
 *   last  the highest rank.
 */
void endpoint_check(struct fields *f, const struct fields_object *o,
                    const char *key, const char *text, bool own, int64_t last,
                    struct address *out);

/* Checks an entry of "engines" alone, and parses its URL. Errors go to f. */
void engine_config_check(struct fields *f, const struct fields_object *o,
                         struct engine_config *e);

#endif
