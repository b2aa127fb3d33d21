/* Digests of files whose contents may change while their names stay. */
#ifndef CONDUCTOR_CONFIG_CONTENTS_H
#define CONDUCTOR_CONFIG_CONTENTS_H

#include "conductor/config/config.h"
#include "proto/message.h"

#define CONFIG_CONTENTS 7u

/* SHA-256 of each file; all 0 = it is missing or cannot be read. */
struct config_contents {
    uint8_t digest[CONFIG_CONTENTS][PROTO_PROOF_BYTES];
};

/* config_contents_read(c, out): digests the files, which it reads whole. */
void config_contents_read(const struct config *c, struct config_contents *out);

/* config_contents_compare(old, was, next, is, changes): adds the options whose
 * file has the same name in both configurations, and another content, to
 * changes->taken. */
void config_contents_compare(const struct config *old,
                             const struct config_contents *was,
                             const struct config *next,
                             const struct config_contents *is,
                             struct config_changes *changes);

#endif
