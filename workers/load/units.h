/* Knows which units of a load were asked for, and which came: a bitmap and a
 * cursor for each. Pure.
 *
 * A unit is a block, or one layer of a block. Units are numbered in the order
 * in which they are asked for. These are the numbers for blocks 0 to n-1:
 *
 *      whole blocks          by layers
 *      n-1 .. 2  1  0        layer 0:  0    1    2  .. n-1
 *                            layer 1:  n   n+1  n+2 .. 2n-1 */
#ifndef WORKERS_LOAD_UNITS_H
#define WORKERS_LOAD_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define LOAD_UNIT_NONE UINT32_MAX

enum load_unit { UNIT_WANTED, UNIT_ASKED, UNIT_CAME };

/* Changed in units.c only. */
struct load_units {
    bool by_layer;
    uint32_t layers;  /* units of a block; 1 unless by_layer */
    uint32_t first;   /* first block of the load */
    uint32_t n;       /* number of blocks */
    uint32_t cursor;  /* all units before it were asked for */
    uint32_t gate;    /* all units before it that are still wanted have come */
    uint32_t n_asked; /* units asked for, including those that came */
    uint32_t n_came;
    uint64_t *asked; /* (n x layers) bits, owned */
    uint64_t *came;  /* (n x layers) bits, owned */
};

/* Begins with n wanted blocks of `layers` layers. Returns 0, or -ENOMEM. */
[[nodiscard]] int load_units_init(struct load_units *u, uint32_t n,
                                  uint32_t layers, bool by_layer);

/* Frees the bitmaps. */
void load_units_fini(struct load_units *u);

/* Leaves out blocks before `first`. Call it before any unit is asked for. */
void load_units_begin(struct load_units *u, uint32_t first);

/* Returns the next wanted unit of blocks [from, to), or LOAD_UNIT_NONE.
 * O(units behind the cursor). */
uint32_t load_units_next(struct load_units *u, uint32_t from, uint32_t to);

/* Returns the block of `unit`. */
uint32_t load_units_block(const struct load_units *u, uint32_t unit);

/* Sets the state of `unit`. */
void load_units_set(struct load_units *u, uint32_t unit, enum load_unit state);

/* Makes all units of block b wanted again. O(layers). */
void load_units_forget(struct load_units *u, uint32_t b);

/* Returns how many units of block b are in `state`. O(layers). */
uint32_t load_units_count(const struct load_units *u, uint32_t b,
                          enum load_unit state);

/* By layers: returns how many leading layers came for all blocks before `end`.
 */
uint32_t load_units_gate(struct load_units *u, uint32_t end);

#endif
