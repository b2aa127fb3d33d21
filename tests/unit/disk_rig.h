/* What the tests of the disk tier share: a slab in a folder of its own, and
 * blocks whose contents follow from the prompt that leads to them. */
#ifndef TESTS_UNIT_DISK_RIG_H
#define TESTS_UNIT_DISK_RIG_H

#include "workers/disk/tier/tier.h"

#define RIG_TOKENS 2u   /* of a block */
#define RIG_CHAIN 8u    /* most blocks of a prompt */
#define RIG_DONE_NOT 99 /* rig.rc before the callback */

struct disk_rig {
    char folder[64];
    char path[96];
    struct disk_tier_config config;
    struct disk_tier *t;
    char *memory; /* (RIG_CHAIN, block_bytes), aligned */
    int rc;       /* of the last operation */
    uint32_t n_done;
    char err[512];
};

/* A prompt of RIG_CHAIN blocks. */
struct rig_prompt {
    uint32_t tokens[RIG_CHAIN * RIG_TOKENS];
    uint64_t keys[RIG_CHAIN];
};

/* A folder, memory and a configuration: 3 layers of `layer_bytes`, as many
 * blocks as `slots`. Nothing is opened. Fails the test without memory. */
void disk_rig_init(struct disk_rig *rig, uint64_t layer_bytes, uint32_t slots);

/* Closes and removes everything. */
void disk_rig_fini(struct disk_rig *rig);

/* Opens the tier. Returns what disk_tier_open does, its message in rig->err. */
int disk_rig_open(struct disk_rig *rig);

/* Closes the tier and opens it again; fails the test if it cannot. */
void disk_rig_reopen(struct disk_rig *rig);

/* Polls until nothing is under way. */
void disk_rig_settle(struct disk_rig *rig);

/* For reads and writes: notes the outcome; arg is the rig. */
void disk_rig_done(void *arg, int rc);

/* A prompt that differs from others of another `seed` from block
 * `from_block` on. */
void disk_rig_prompt(struct rig_prompt *p, uint32_t seed, uint32_t from_block);

/* Memory of block `i`. */
char *disk_rig_block(const struct disk_rig *rig, uint32_t i);

/* Fills memory[0, block_bytes) with the KV of block `i` of the prompt. */
void disk_rig_fill(const struct disk_rig *rig, const struct rig_prompt *p,
                   uint32_t i, char *memory);

/* Whether layers [from, to) of memory are those of block `i`. */
bool disk_rig_is(const struct disk_rig *rig, const struct rig_prompt *p,
                 uint32_t i, uint32_t from, uint32_t to, const char *memory);

/* Writes blocks [from, to) of the prompt, one after the other. Returns the
 * first error, or 0. */
int disk_rig_write(struct disk_rig *rig, const struct rig_prompt *p,
                   uint32_t from, uint32_t to);

/* How many leading blocks match; no pins are left. */
uint32_t disk_rig_match(struct disk_rig *rig, const struct rig_prompt *p);

/* Reads layers [from, to) of block `i`, which must match, and waits. Returns
 * the outcome; right data are part of a 0 (else the test fails). */
int disk_rig_read(struct disk_rig *rig, const struct rig_prompt *p, uint32_t i,
                  uint32_t from, uint32_t to);

/* The slot that block `i` of the prompt has, which must match. */
uint32_t disk_rig_slot(struct disk_rig *rig, const struct rig_prompt *p,
                       uint32_t i);

/* Flips the bits of one byte of the file. */
void disk_rig_flip(const struct disk_rig *rig, uint64_t offset);

/* Where slot headers and data are: what workers/disk/slab/slab.h draws. */
uint64_t disk_rig_page_offset(const struct disk_rig *rig, uint32_t slot);
uint64_t disk_rig_data_offset(const struct disk_rig *rig, uint32_t slot);

#endif
