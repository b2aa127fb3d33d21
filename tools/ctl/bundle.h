/* The file of `conductorctl diagnose --bundle`, for a bug report. */
#ifndef TOOLS_CTL_BUNDLE_H
#define TOOLS_CTL_BUNDLE_H

#include <jansson.h>

#include "tools/ctl/readings.h"

/*
 * Removes from a text, in place, what may be a secret or a client's:
 * - in a URL, all before '@', as the password of Redis
 * - behind '?', what has the form of parameters
 * - the word behind "Bearer " and "Basic "
 * - the word behind a name that ends with key, token, secret, password or the
 *   like, and '=' or ':'; the rest of the line behind Authorization and Cookie
 * - what clients call requests and traces, as the log says it between quotes
 */
void bundle_scrub(char *text);

/*
 * Writes the bundle to ctl->bundle: one object of JSON with what was read, the
 * diagnosis, the configuration ctl->config and the end of the log ctl->log.
 * Texts are scrubbed; of the decisions, what clients call their requests and
 * sessions is left out; of the configuration, members whose name says that they
 * are secret. A file that cannot be read is named in the bundle, with the
 * reason. Only its owner may read the file. Returns 0, or 1 after printing the
 * error.
 */
[[nodiscard]] int bundle_write(const struct ctl *ctl, const struct readings *r,
                               const json_t *diagnosis);

#endif
