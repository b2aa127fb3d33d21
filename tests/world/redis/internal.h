/*
 * Shared by the files of this folder. Names begin with mr_ (model of Redis),
 * as base/redis and base/stream are linked beside it. Calls run one way:
 * server -> execute -> commands, script -> keys, hash, zset, stream -> bytes.
 */
#ifndef TESTS_WORLD_REDIS_INTERNAL_H
#define TESTS_WORLD_REDIS_INTERNAL_H

#include <sys/queue.h>

#include "tests/world/redis/mr.h"
#include "traces/random.h"

#define MR_DATABASES 16
#define MR_MS_NONE (-1) /* a key that does not expire */

/* --- bytes.c -------------------------------------------------------------- */

/* Bytes with a NUL behind them; the user says whether they are owned. */
struct mr_bytes {
    const char *data;
    size_t n;
};

/* Bytes that grow. */
struct mr_buf {
    char *data;
    size_t n, room;
};

#define MR_LIT(text) ((struct mr_bytes){(text), sizeof(text) - 1})

/* A text, borrowed; a copy, owned; frees owned bytes. */
struct mr_bytes mr_bytes_of(const char *text);
struct mr_bytes mr_bytes_copy(struct mr_bytes b);
void mr_bytes_free(struct mr_bytes b);

bool mr_bytes_equal(struct mr_bytes a, struct mr_bytes b);
int mr_bytes_order(struct mr_bytes a, struct mr_bytes b); /* as memcmp() */

/* Returns whether a word of a command is `word`, as Redis compares options:
 * up to a NUL, in any case. */
bool mr_is(struct mr_bytes b, const char *word);

/* calloc(), and base/array.h's array_room(), which abort without memory. */
void *mr_alloc(size_t n);
void *mr_grow(void *items, size_t *room, size_t count, size_t size);

/* Appends n bytes; removes the first n bytes. */
void mr_put(struct mr_buf *b, const void *bytes, size_t n);
void mr_drop(struct mr_buf *b, size_t n);

/* Read numbers as commands of Redis do; `open`: a limit that does not belong to
 * its range, "(1". Each returns whether it is one. */
bool mr_read_int(struct mr_bytes b, long long *value);
bool mr_read_double(struct mr_bytes b, double *value);
bool mr_read_limit(struct mr_bytes b, double *value, bool *open);

/* Writes a score as Redis keeps it in a small sorted set. */
#define MR_NUMBER_MAX 64
size_t mr_write_score(double score, char out[MR_NUMBER_MAX]);

/* --- resp.c: answers ------------------------------------------------------ */

/* Each appends one answer, or the head of one. */
void mr_out_status(struct mr_buf *out, const char *text);
void mr_out_error(struct mr_buf *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void mr_out_int(struct mr_buf *out, long long value);
void mr_out_bulk(struct mr_buf *out, struct mr_bytes b);
void mr_out_text(struct mr_buf *out, const char *text);
void mr_out_double(struct mr_buf *out, double value);
void mr_out_nil(struct mr_buf *out);
void mr_out_nil_array(struct mr_buf *out);
void mr_out_array(struct mr_buf *out, size_t n);

/* The errors that several commands have. */
void mr_out_wrong_type(struct mr_buf *out);
void mr_out_syntax(struct mr_buf *out);
void mr_out_not_int(struct mr_buf *out);

/* Refuses what the model lacks. */
void mr_out_lacks(struct mr_buf *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- request.c: commands from bytes --------------------------------------- */

struct mr_words {
    struct mr_bytes *at; /* owned, each */
    size_t n, room;
};

void mr_words_free(struct mr_words *w);

/* The part of a connection's next command that has been read. */
struct mr_request {
    struct mr_words words;
    long long bulks_left; /* 0 = the head has not been read */
    long long bulk;       /* bytes of the next word; -1 = not read yet */
};

enum mr_next { MR_MORE, MR_COMMAND, MR_NOTHING, MR_BAD };

/* Takes what it can from *used on. MR_COMMAND: its words are complete.
 * MR_NOTHING: it was empty. MR_BAD: out has the error, and the connection is to
 * be closed. strange: the connection has yet to give the password. */
enum mr_next mr_request_next(struct mr_request *r, const struct mr_buf *in,
                             size_t *used, bool strange, struct mr_buf *out);

/* --- the data ------------------------------------------------------------- */

enum mr_kind { MR_NONE, MR_STRING, MR_HASH, MR_ZSET, MR_STREAM, MR_SET };

/* A hash; as a set: fields without values. `packed`: Redis keeps it in the
 * order of insertion; otherwise in an order that nobody knows. */
struct mr_field {
    struct mr_bytes name, value; /* owned */
};
struct mr_hash {
    struct mr_field *at;
    size_t n, room;
    size_t bytes; /* of names and values */
    bool packed;
};

/* Ordered by score, then name. */
struct mr_member {
    double score;
    struct mr_bytes name; /* owned */
};
struct mr_zset {
    struct mr_member *at;
    size_t n, room;
    size_t bytes; /* of names and values */
    bool packed;
};

struct mr_id {
    uint64_t ms, seq;
};
struct mr_entry {
    struct mr_id id;
    struct mr_words words; /* field, value, field, ... */
};
/* Redis keeps entries in nodes, and trims whole nodes. */
struct mr_node {
    size_t entries;
    size_t bytes;       /* of its listpack */
    struct mr_id first; /* its master entry */
    struct mr_words fields;
};
struct mr_stream {
    struct mr_entry *at;
    size_t n, room;
    struct mr_node *nodes;
    size_t n_nodes, nodes_room;
    size_t bytes; /* of fields and values */
    struct mr_id last;
};

struct mr_key {
    struct mr_bytes name; /* owned */
    enum mr_kind kind;
    int64_t expires_ms; /* of Redis's clock */
    uint64_t used;      /* number of the command that used it last */
    size_t bytes;       /* as counted in mr_data.bytes */
    union {
        struct mr_bytes string; /* owned */
        struct mr_hash hash;    /* MR_HASH, MR_SET */
        struct mr_zset zset;
        struct mr_stream stream;
    };
};

/* Ordered by name. */
struct mr_database {
    struct mr_key **at;
    size_t n, room;
};

struct mr_data {
    struct mr_database databases[MR_DATABASES];
    uint64_t bytes;
};

/* keys.c: all keys of a server. mr_data_copy() clears `to` first;
 * mr_data_equal() does not compare when keys were used. */
void mr_data_clear(struct mr_data *d);
void mr_data_copy(struct mr_data *to, const struct mr_data *from);
bool mr_data_equal(const struct mr_data *a, const struct mr_data *b);

/* keys.c: one key. mr_data_find() returns NULL if there is none, and does not
 * ask whether it is over; mr_data_make() wants that there is none;
 * mr_data_count() takes over how large it has become; mr_key_clear() frees its
 * value. */
struct mr_key *mr_data_find(const struct mr_data *d, unsigned database,
                            struct mr_bytes name);
struct mr_key *mr_data_make(struct mr_data *d, unsigned database,
                            struct mr_bytes name, enum mr_kind kind);
void mr_data_remove(struct mr_data *d, unsigned database, struct mr_key *k);
void mr_data_count(struct mr_data *d, struct mr_key *k);
void mr_key_clear(struct mr_key *k);

/* hash.c. mr_hash_set() copies both, and returns whether the field is new;
 * mr_hash_remove() returns whether it was there. O(fields). */
struct mr_field *mr_hash_find(const struct mr_hash *h, struct mr_bytes name);
bool mr_hash_set(struct mr_hash *h, struct mr_bytes name,
                 struct mr_bytes value);
bool mr_hash_remove(struct mr_hash *h, struct mr_bytes name);
void mr_hash_clear(struct mr_hash *h);

/* zset.c. mr_zset_set() copies the name, and returns whether it is new;
 * mr_zset_remove() removes n members from place `at` on. O(members). */
struct mr_member *mr_zset_find(const struct mr_zset *z, struct mr_bytes name);
bool mr_zset_set(struct mr_zset *z, double score, struct mr_bytes name);
void mr_zset_remove(struct mr_zset *z, size_t at, size_t n);
void mr_zset_clear(struct mr_zset *z);

/* stream.c: places. mr_id_next() returns false for the last one. mr_id_read()
 * gives a place without its second number seq_without; `strict`: it is neither
 * "-" nor "+". */
int mr_id_order(struct mr_id a, struct mr_id b);
bool mr_id_next(struct mr_id *id);
bool mr_id_read(struct mr_bytes b, struct mr_id *id, uint64_t seq_without,
                bool strict);
size_t mr_id_write(struct mr_id id, char out[MR_NUMBER_MAX]);

/* stream.c: adds an entry of n words, copied, whose place is behind all others;
 * removes whole nodes while `max` entries are left, and returns how many
 * entries went; returns the index of the first entry behind a place. */
void mr_stream_add(struct mr_stream *s, struct mr_id id,
                   const struct mr_bytes *words, size_t n);
size_t mr_stream_trim(struct mr_stream *s, long long max);
size_t mr_stream_behind(const struct mr_stream *s, struct mr_id id);
void mr_stream_copy(struct mr_stream *to, const struct mr_stream *from);
void mr_stream_clear(struct mr_stream *s);
void mr_stream_check(const struct mr_stream *s);

/* --- the server ----------------------------------------------------------- */

struct mr_command;

/* A write that a replica has not executed yet. */
struct mr_written {
    struct mr_words words;
    unsigned database;
    int64_t clock_us; /* when the primary executed it */
};

/* A script that was loaded. */
struct mr_script {
    SLIST_ENTRY(mr_script) entry;
    char sha[41];
    struct mr_bytes text; /* owned */
};

struct mr {
    struct mr_options options;
    char *password;
    struct random_state random;
    int64_t now_us;   /* the world's */
    int64_t clock_us; /* Redis's clock minus now_us */
    int64_t free_us;  /* when it executes the next command */
    int64_t slow_us;
    enum mr_role role;
    uint64_t max_bytes;
    const char *policy;
    struct mr_data data, replica;
    struct mr_written *written; /* a ring of options.lag places */
    unsigned n_written, first_written;
    SLIST_HEAD(, mr_script) scripts;
    TAILQ_HEAD(, mr_conn) conns;
    TAILQ_HEAD(, mr_conn) blocked; /* in the order in which they began */
    struct mr_counts counts;
};

/* A key that a blocked read waits for. */
struct mr_wait {
    struct mr_bytes key; /* owned */
    struct mr_id id;
};

struct mr_conn {
    TAILQ_ENTRY(mr_conn) entry;
    TAILQ_ENTRY(mr_conn) blocked;
    struct mr *m;
    void (*ready)(void *arg);
    void *arg;
    struct mr_request request;
    struct mr_buf in, out;
    unsigned database;
    bool known; /* has given the password */
    bool over;
    struct mr_wait *waits; /* blocked if any */
    size_t n_waits;
    int64_t until_ms; /* of Redis's clock; 0 = for ever */
    long long count;
};

/* One command while it is executed. */
struct mr_call {
    struct mr *m;
    struct mr_conn *c;    /* NULL = a replica executes it */
    struct mr_data *data; /* the primary's or the replica's */
    unsigned database;
    int64_t clock_us; /* the time of Redis's clock at its start */
    const struct mr_bytes *argv;
    size_t argc;
    struct mr_buf *out;
    bool in_script;
    bool replay;  /* a replica executes it */
    bool changed; /* it wrote: replicas execute it, too */
    /* Keys of streams that got entries, for reads that wait. */
    struct mr_bytes *added; /* owned, each */
    size_t n_added, added_room;
};

#define MR_WRITES 1u  /* a replica refuses it */
#define MR_GROWS 2u   /* refused without memory */
#define MR_OPEN 4u    /* needs no password */
#define MR_NO_LUA 8u  /* no script calls it */
#define MR_LOADS 16u  /* also while data is loaded */
#define MR_SCRIPT 32u /* executes commands of its own */

struct mr_command {
    const char *name;
    int arity; /* words; negative: at least so many */
    unsigned flags;
    void (*run)(struct mr_call *call);
};

/* execute.c. Executes a command and appends its answer. The caller then ends
 * the call. */
void mr_execute(struct mr_call *call);
void mr_call_end(struct mr_call *call);

/* execute.c: the command of a name, NULL = there is none; whether it may have
 * so many words. */
const struct mr_command *mr_command_find(struct mr_bytes name);
bool mr_command_fits(const struct mr_command *d, size_t argc);

/* memory.c: whether data takes too much after all was evicted that may go. */
bool mr_full(struct mr *m);
const char *mr_policy_find(const char *name); /* NULL = there is none */
extern const char mr_policy_names[];

/* stream_commands.c: answers reads that wait for what the call added; ends a
 * read that waits, with nil or without an answer. */
void mr_serve_waits(struct mr *m, struct mr_call *call);
void mr_unblock(struct mr_conn *c, bool answer);

/* server.c: mr_write() keeps a command for the replica; mr_write_del() keeps a
 * DEL of one key. */
void mr_write(struct mr *m, unsigned database, const struct mr_bytes *argv,
              size_t argc, int64_t clock_us);
void mr_write_del(struct mr *m, unsigned database, const struct mr_key *k,
                  int64_t clock_us);

/* Returns the time of Redis's clock, ms. */
int64_t mr_call_ms(const struct mr_call *call);

/* Returns the key, or NULL: it does not exist or has expired. */
struct mr_key *mr_look(struct mr_call *call, struct mr_bytes name);

/* Writes the same key to *k. Returns false after answering that it is of
 * another kind. */
bool mr_look_for(struct mr_call *call, struct mr_bytes name, enum mr_kind kind,
                 struct mr_key **k);

/* Removes a key, for the replica, too. */
void mr_remove(struct mr_call *call, struct mr_key *k);

/* Notes that a key was changed. */
void mr_changed(struct mr_call *call, struct mr_key *k);

/* The tables of commands, by file. */
extern const struct mr_command mr_key_commands[], mr_hash_commands[],
    mr_zset_commands[], mr_stream_commands[], mr_script_commands[],
    mr_server_commands[], mr_fault_commands[];

/* --- answers that are read ------------------------------------------------ */

/* An answer that was read. */
enum mr_reply_kind {
    MR_R_NIL,
    MR_R_STATUS,
    MR_R_ERROR,
    MR_R_INT,
    MR_R_BULK,
    MR_R_ARRAY
};
struct mr_reply {
    enum mr_reply_kind kind;
    bool array;           /* a nil array */
    struct mr_bytes text; /* owned */
    long long value;
    struct mr_reply *at; /* owned */
    size_t n;
};

/* reply.c: reads one answer of `bytes`. Returns the bytes that it took; 0 =
 * it is not complete; -1 = it is none. */
long mr_reply_read(const char *bytes, size_t n, struct mr_reply *r);
void mr_reply_free(struct mr_reply *r);

/* --- scripts -------------------------------------------------------------- */

/* A running script. */
struct mr_lua {
    struct mr_call *call;
    const struct mr_script *script;
    const struct mr_bytes *keys, *args; /* KEYS and ARGV, from index 0 */
    size_t n_keys, n_args;
    bool full;   /* there was no memory when it began */
    bool wrote;  /* from then on nothing is refused for want of memory */
    bool failed; /* a command raised an error, which is the script's answer:
                    commands do nothing any more, and answer nil */
};

/* script.c: the loaded script of a SHA, NULL = none; forgets all. */
const struct mr_script *mr_script_find(const struct mr *m, struct mr_bytes sha);
void mr_scripts_forget(struct mr *m);

/* redis.call(words) of the script's statement, by which the error tells its
 * line; protect: redis.pcall(). Returns the answer, owned. */
struct mr_reply mr_lua_call(struct mr_lua *l, const char *statement,
                            bool protect, size_t n,
                            const struct mr_bytes *words);

#define MR_WORDS(...)         \
    (const struct mr_bytes[]) \
    {                         \
        __VA_ARGS__           \
    }
#define MR_CALL(l, statement, ...)                                       \
    mr_lua_call((l), (statement), false,                                 \
                sizeof(MR_WORDS(__VA_ARGS__)) / sizeof(struct mr_bytes), \
                MR_WORDS(__VA_ARGS__))

/* Calls a command as MR_CALL(), and drops its answer. */
#define MR_DO(l, statement, ...)                                    \
    do {                                                            \
        struct mr_reply done_ = MR_CALL(l, statement, __VA_ARGS__); \
                                                                    \
        mr_reply_free(&done_);                                      \
    } while (0)

/* A number as Lua gives it to a command. The text lives in `room`. */
struct mr_bytes mr_lua_word(double value, char room[MR_NUMBER_MAX]);

/* tonumber(b). Returns whether it is a number. */
bool mr_lua_number(struct mr_bytes b, double *value);

/* string.match(b, '^(%S+) (%S+)'); `last`: '(%S+) (%S+)$'. Returns whether it
 * matches; the parts, borrowed. */
bool mr_lua_pair(struct mr_bytes b, bool last, struct mr_bytes part[2]);

/* Redis's clock, as TIME gives it. */
void mr_lua_time(const struct mr_lua *l, double *s, double *us);

/* The scripts of Conductor. Each answers in l->call->out unless it failed. */
void mr_script_renew(struct mr_lua *l);
void mr_script_limits(struct mr_lua *l);

#endif
