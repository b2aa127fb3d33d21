/*
 * Shared by the files of the transport rdma.
 *
 *   rdma    cards (devices), paths (asking) and offers (serving)
 *   path    channel + a spread + an end point on each rail in use
 *   offer   channel + the queue pairs that its peer may use, and grants
 *   end     one queue pair, of a path (it posts) or of an offer (it is read)
 *
 * Threads: the loop's thread owns everything, except a queue pair with a job
 * under way: making, connecting and destroying one may sleep, up to a second if
 * a neighbour's address must be resolved. Each card has a thread for its jobs,
 * which sees only a struct job.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_RDMA_INTERNAL_H

#include <infiniband/verbs.h>
#include <sys/queue.h>

#include "base/crew.h"
#include "base/dial.h"
#include "base/loop/loop.h"
#include "workers/transfer/engine/rdma/rdma.h"
#include "workers/transfer/engine/rdma/sieve.h"
#include "workers/transfer/engine/rdma/spread.h"
#include "workers/transfer/engine/rdma/topology.h"
#include "workers/transfer/engine/rdma/wire.h"

struct dns;
struct listener;
struct stream;
struct stream_loop;

/* Most ops of a path, and most slices of an op. */
#define RDMA_OPS_MAX 1024u
#define RDMA_SLICES_MAX 65536u
/* Most grants of an offer. */
#define RDMA_GRANTS_MAX 65536u
/* Revoked grants that an asker remembers: ops under them may still come. */
#define RDMA_REVOKED_MAX 1024u
/* Most connections that have sent no token yet. */
#define RDMA_STRANGERS_MAX 64u
/* Time for making a connection, and for the answer to a pairing. */
#define RDMA_PATIENCE_US 3000000
/* Time for slices of a queue pair in error to complete; then the queue pair is
 * destroyed. */
#define RDMA_FLUSH_US 2000000
/* First and longest pause before a failed rail is tried again. */
#define RDMA_RETRY_FIRST_US 100000
#define RDMA_RETRY_LONGEST_US 5000000
/* The card sends an unanswered packet again after 4.096 us x 2^ACK_TIMEOUT,
 * RETRIES times: a silent loss is noticed within half a second. */
#define RDMA_ACK_TIMEOUT 14
#define RDMA_RETRIES 4
/* Most reads that a queue pair executes at once. */
#define RDMA_READS_MAX 16u
/* Most work requests of one post. */
#define RDMA_POST_MAX 16u

/* --- job.c: the work of a card's thread --- */

enum job_kind {
    JOB_MAKE,    /* make a queue pair */
    JOB_CONNECT, /* connect it to the peer's */
    JOB_SERVE,   /* make and connect one for a peer */
    JOB_DESTROY,
};

/* The peer's queue pair, and this side's first packet number. */
struct pairing {
    uint8_t gid[16];
    uint16_t lid;
    uint32_t qpn, psn;
    uint32_t own_psn;
    uint8_t mtu, reads;
};

struct job {
    struct crew_job at; /* in the thread's queues */
    enum job_kind kind;
    struct card *card; /* the thread reads only members that never change */
    struct ibv_qp *qp; /* NULL = not made yet, or destroyed */
    struct pairing to;
    int rc;
};

struct job_thread {
    struct crew *crew; /* one thread; NULL = not started */
    int bell;          /* eventfd: a job is over */
};

/* Starts the thread. Returns 0, or a negative errno. */
[[nodiscard]] int job_thread_start(struct job_thread *t);
/* Runs the jobs that wait, then ends the thread. */
void job_thread_stop(struct job_thread *t);
void job_thread_add(struct job_thread *t, struct job *job);
/* Returns a finished job, or NULL. */
struct job *job_thread_over(struct job_thread *t);

/* --- gid.c --- */

struct card;

/* Sets c->gid to the best of the card's n addresses. Returns 0, or
 * -EADDRNOTAVAIL. */
[[nodiscard]] int card_find_gid(struct card *c, int n);
/* Returns the present index of c->gid, which changes when a link was down; or a
 * negative errno. */
int card_gid_index(const struct card *c);

/* --- card.c --- */

struct card {
    struct rdma *rdma;
    uint32_t index; /* number of its rail */
    struct topology_nic nic;
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    unsigned n_events; /* events of cq not acknowledged yet */
    struct loop_watch completion, async, over;
    struct ibv_mr *regions[TRANSPORT_REGIONS_MAX];
    union ibv_gid gid;
    uint16_t lid;
    enum ibv_mtu mtu;
    uint8_t reads;
    bool up;
    struct job_thread jobs;
};

/* Opens the device c->nic.name; c->rdma, c->index and c->nic are set. Returns
 * 0, or a negative errno with a message in err[err_bytes]. */
[[nodiscard]] int card_open(struct card *c, char *err, size_t err_bytes);
/* Closes the card, even if opened only in part. No end point may be left. */
void card_close(struct card *c);
/* Takes all completions. */
void card_take(struct card *c);
/* Takes all finished jobs. */
void card_take_jobs(struct card *c);

/* --- end.c, end_io.c: queue pairs --- */

enum end_state {
    END_MAKING,     /* JOB_MAKE is under way */
    END_ASKED,      /* PAIR was sent */
    END_CONNECTING, /* JOB_CONNECT, or JOB_SERVE, is under way */
    END_PROBING,    /* an empty read is under way */
    END_UP,
    END_DYING,      /* in error; its slices are being completed */
    END_DESTROYING, /* JOB_DESTROY is under way */
};

struct end {
    TAILQ_ENTRY(end) link; /* in path.all or offer.ends */
    enum end_state state;
    struct card *card;
    struct rdma_path *path;   /* posts the path's reads; NULL if it serves */
    struct rdma_offer *offer; /* its peer reads; NULL if it asks */
    uint64_t id;              /* of the pairing */
    uint32_t slot;            /* in rdma.ends */
    uint32_t place;           /* in rdma.sieve; SIEVE_NONE = none */
    uint32_t peer_rail;
    uint32_t posted; /* work requests not completed */
    int64_t from_us; /* begin of the present state */
    bool doomed;     /* dies when its job is over */
    bool asked;      /* PAIR was sent: the peer has a queue pair for it */
    struct job job;
};

TAILQ_HEAD(end_list, end);

/* A slot in rdma.ends, named by completions. */
struct end_slot {
    struct end *end; /* NULL = free */
    uint32_t turn;   /* how often the slot was taken */
    uint32_t next;   /* next free slot, if free */
};

/* Begins to make an end point of `p` on `card`. Returns it, or NULL: all places
 * are taken by busy end points, or out of memory. */
struct end *end_ask(struct rdma_path *p, struct card *card, uint32_t peer_rail);
/* Begins to make an end point of `o` for the PAIR `m`. Returns 0, or the
 * negative errno to answer with. */
int end_serve(struct rdma_offer *o, const struct wire_message *m);
/* Returns the message PAIR or PAIRED of `e`. */
struct wire_message end_message(const struct end *e, enum wire_type type);
/* Takes the PAIRED `m` for `e`. */
void end_paired(struct end *e, const struct wire_message *m);
/* Ends `e`: its slices complete, and then it is freed. `why` NULL = no failure
 * of the rail. */
void end_fail(struct end *e, const char *why);
/* Posts slices[n], which are within the credits. */
void end_post(struct end *e, struct spread_slice **slices, uint32_t n);
/* Takes a completion of card `c`. */
void end_completed(struct card *c, const struct ibv_wc *wc);
/* Continues with an end point after its job. */
void end_job_over(struct job *job);
/* Ends states that take too long. */
void end_tick(struct end *e, int64_t now_us);

/* For end.c and end_io.c only. */
void end_set_state(struct end *e, enum end_state state);
void end_start(struct end *e, enum job_kind kind, enum end_state state);
void end_die(struct end *e);
void end_free(struct end *e);

/* --- channel.c: messages --- */

struct channel {
    struct stream_loop *streams;
    struct dial dial;
    struct stream *stream; /* NULL = not connected */
    struct loop_timer cut; /* ends a channel whose peer does not read */
    /* Takes a message. Returns false if the channel is gone. */
    bool (*message)(void *arg, const struct wire_message *m);
    /* Called when the channel has failed: -EBADMSG (a malformed message), or
     * another errno. The callee calls channel_fini(). */
    void (*gone)(void *arg, int rc, const char *why);
    void (*opened)(void *arg); /* NULL = the connection was accepted */
    void *arg;
};

/* Connects; opened() or gone() follows, from the loop. Borrows streams and dns.
 * Returns 0 or -ENOMEM. */
[[nodiscard]] int channel_connect(struct channel *c,
                                  struct stream_loop *streams, struct dns *dns,
                                  const char *host, uint16_t port);
/* Takes over the accepted socket `fd`, even on failure. Returns 0 or
 * -ENOMEM. */
[[nodiscard]] int channel_take(struct channel *c, struct stream_loop *streams,
                               int fd);
/* Sends `m`; a no-op if the channel is not connected. */
void channel_send(struct channel *c, const struct wire_message *m);
/* Moves the connection of `from` to `c`. Inside a message of `from`, which then
 * returns false. */
void channel_move(struct channel *c, struct channel *from);
/* Closes a channel, without a callback. */
void channel_fini(struct channel *c);

/* --- grants.c, path.c, path_wire.c, path_open.c: asking --- */

struct rdma_path {
    struct transport_path base;
    TAILQ_ENTRY(rdma_path) link;
    struct rdma *rdma;
    const struct transport_path_ops *ops;
    void *arg;
    struct channel channel;
    struct wire_descriptor peer;
    struct spread *spread;
    struct loop_timer timer;
    struct end *ends[SPREAD_RAILS_MAX];  /* of each rail; NULL = none */
    uint32_t attempts[SPREAD_RAILS_MAX]; /* failed attempts of each rail */
    struct end_list all;                 /* end points, dying ones included */
    uint64_t n_pairings;
    uint64_t moved_bytes;
    uint64_t *grants; /* (n_grants): allowed */
    uint32_t n_grants, grants_room;
    uint64_t *leaving; /* (n_leaving): revoked grants that still have ops */
    uint32_t n_leaving, leaving_room;
    uint64_t revoked[RDMA_REVOKED_MAX]; /* a ring */
    uint32_t n_revoked;
    int64_t opened_us;
    bool welcome; /* WELCOME has come */
    bool rail_up; /* a rail is or was up */
    bool stands;  /* stands() was called */
    bool dirty;   /* in rdma.dirty_paths */
    TAILQ_ENTRY(rdma_path) dirty_link;
    int rc; /* negative = failed */
    char why[96];
    bool told;   /* closed() was called */
    bool closed; /* closed by its owner */
};

struct transport_path *rdma_open(struct transport *t,
                                 const struct transport_peer *peer,
                                 const struct transport_path_ops *ops,
                                 void *arg);
int rdma_read(struct transport_path *p, uint64_t op_id, uint64_t grant_id,
              const struct transport_slice *slices, uint32_t n);
void rdma_cancel(struct transport_path *p, uint64_t op_id);
uint64_t rdma_moved_bytes(const struct transport_path *p);
void rdma_close(struct transport_path *p);

/* Pairs rails and posts slices as far as possible, and sets the timer. */
void path_pump(struct rdma_path *p);
/* Fails the path: ends its ops and end points. */
void path_fail(struct rdma_path *p, int rc, const char *why);
/* Calls back for ops that ended, and for the path's own end. */
void path_tell(struct rdma_path *p);
/* Marks the path, so that the next turn calls path_pump() and path_tell(). */
void path_mark(struct rdma_path *p);
/* The callbacks of its channel. */
void path_opened(void *arg);
bool path_message(void *arg, const struct wire_message *m);
void path_channel_gone(void *arg, int rc, const char *why);
/* Answers REVOKEs whose ops have ended. */
void path_revoked(struct rdma_path *p);
/* Returns 1 if ops under `grant` may be posted, 0 if GRANT has not come yet, or
 * -EACCES if it was revoked. */
int path_may(const struct rdma_path *p, uint64_t grant);
/* Takes GRANT. Returns 0, -ENOMEM, or -ENOBUFS. */
int path_granted(struct rdma_path *p, uint64_t id);
/* Takes REVOKE. Returns 0, -EPROTO (an unknown grant), -ENOMEM, or -ENOBUFS. */
int path_revoke(struct rdma_path *p, uint64_t id);
/* For path_open.c. */
void path_on_timer(void *arg);
void path_free(struct rdma_path *p);
void path_fail_ends(struct rdma_path *p);
/* Notes that the port of this side's card `rail` came up or went down. */
void path_rail_changed(struct rdma_path *p, uint32_t rail, bool up);
/* Frees the path if it was closed and has no end point left. */
void path_reap(struct rdma_path *p);

/* --- offer.c: serving --- */

struct grant {
    TAILQ_ENTRY(grant) link;
    uint64_t id;
    bool told;           /* GRANT was sent */
    bool revoking, over; /* revoke() was called; revoked() is due */
    int64_t revoke_us;
};

struct rdma_offer {
    struct transport_offer base;
    TAILQ_ENTRY(rdma_offer) link;
    struct rdma *rdma;
    const struct transport_offer_ops *ops;
    void *arg;
    uint8_t token[WIRE_TOKEN_BYTES];
    struct channel channel; /* no stream = the peer is not connected */
    struct end_list ends;
    uint32_t n_ends;
    TAILQ_HEAD(, grant) grants;
    uint32_t n_grants;
    bool dirty;
    TAILQ_ENTRY(rdma_offer) dirty_link;
    bool broken, told_broken;
    char why[96];
    bool withdrawn;
};

struct transport_offer *rdma_offer(struct transport *t,
                                   const struct transport_offer_ops *ops,
                                   void *arg, uint8_t *descriptor, size_t *n);
int rdma_grant(struct transport_offer *o, uint64_t grant_id,
               const struct transport_range *ranges, uint32_t n);
void rdma_revoke(struct transport_offer *o, uint64_t grant_id);
void rdma_withdraw(struct transport_offer *o);

/* Takes over the channel of the offer's peer, which has connected. */
void offer_take(struct rdma_offer *o, struct channel *c);
/* Calls back for revoked grants and a broken offer. */
void offer_tell(struct rdma_offer *o);
/* Marks the offer, so that the next turn calls offer_tell(). */
void offer_mark(struct rdma_offer *o);
/* Drops a peer that does not answer REVOKE in time. */
void offer_tick(struct rdma_offer *o, int64_t now_us);
/* Called when an end point of the offer was made, or freed. */
void offer_end_made(struct end *e);
void offer_end_gone(const struct end *e);
void offer_reap(struct rdma_offer *o);
void offer_rail_changed(struct rdma_offer *o, uint32_t rail, bool up);

/* --- accept.c --- */

/* An accepted connection that has sent no token yet. */
struct stranger_channel {
    TAILQ_ENTRY(stranger_channel) link;
    struct rdma *rdma;
    struct channel channel;
    int64_t since_us;
};

void rdma_accept(void *arg, int fd);
/* Closes strangers that were accepted at since_us or before. */
void rdma_strangers_drop(struct rdma *r, int64_t since_us);

/* --- rdma.c, common.c --- */

/* Peers may only read: a key covers a whole region, so that a peer with the
 * right to write could damage any block. */
#define RDMA_PEERS_MAY IBV_ACCESS_REMOTE_READ

/* Memory to register: host memory, or a GPU's if `fd` is its dmabuf. */
struct rdma_memory {
    void *at;
    uint64_t bytes;
    int fd; /* -1 = host memory */
};

/* Functions in higher files that lower files call. */
struct rdma_up {
    void (*completed)(struct card *c, const struct ibv_wc *wc);
    void (*job_over)(struct job *job);
    void (*end_made)(struct end *e);
    void (*end_gone)(const struct end *e);
    void (*card_changed)(struct card *c, bool up);
    /* Pumps marked paths, and calls back for marked paths and offers. */
    void (*turn)(struct rdma *r);
};

struct rdma {
    struct transport base;
    const struct rdma_up *up;
    struct rdma_config config;
    struct spread_config spread;
    struct topology topology;
    struct listener *listener;
    struct loop_timer turn; /* calls up->turn() */
    struct loop_timer tick;
    struct card cards[SPREAD_RAILS_MAX];
    uint32_t n_cards;
    struct region {
        uint8_t *memory;
        uint64_t bytes;
        uint32_t classes[SPREAD_RAILS_MAX]; /* of each card */
    } regions[TRANSPORT_REGIONS_MAX];
    uint32_t n_regions;
    struct sieve *sieve;   /* of the asking end points */
    struct end_slot *ends; /* (n_slots): asking, serving and dying ones */
    uint32_t n_slots;
    uint32_t free_slot; /* SIEVE_NONE = none */
    uint32_t n_serving;
    TAILQ_HEAD(, rdma_path) paths, dirty_paths;
    TAILQ_HEAD(, rdma_offer) offers, dirty_offers;
    TAILQ_HEAD(, stranger_channel) strangers;
    uint32_t n_strangers;
};

/* Writes a line of the log. */
__attribute__((format(printf, 3, 4))) void
rdma_log(const struct rdma *r, int level, const char *format, ...);
/* Registers memory with a card. Returns NULL and errno on failure. */
struct ibv_mr *rdma_register(struct ibv_pd *pd, const struct rdma_memory *m);
/* Returns the region that holds [memory, memory + bytes), or -1. */
int rdma_region_of(const struct rdma *r, const void *memory, uint64_t bytes);
/* Schedules a turn for marked paths and offers. */
void rdma_turn_soon(struct rdma *r);

#endif
