/*
 * What the files of the transport rdma share. Nobody else includes this.
 *
 *   rdma    cards (devices), paths (asking) and offers (serving)
 *   path    channel + a spread + an end point on each rail that it uses
 *   offer   channel + the queue pairs that its peer may use, and grants
 *   end     one queue pair, of a path (it posts) or of an offer (it is read)
 *
 * Threads: all belongs to the loop's thread, but a queue pair while a job on it
 * is under way: making, connecting and destroying one may sleep, for a second
 * where a neighbour's address has to be found out. Each card has a thread for
 * its jobs; it sees a struct job and nothing else.
 */
#ifndef WORKERS_TRANSFER_ENGINE_RDMA_INTERNAL_H
#define WORKERS_TRANSFER_ENGINE_RDMA_INTERNAL_H

#include <infiniband/verbs.h>
#include <sys/queue.h>

#include "base/crew.h"
#include "workers/transfer/engine/rdma/rdma.h"
#include "workers/transfer/engine/rdma/sieve.h"
#include "workers/transfer/engine/rdma/spread.h"
#include "workers/transfer/engine/rdma/topology.h"
#include "workers/transfer/engine/rdma/wire.h"

struct bufferevent;
struct event;
struct listener;

/* Ops of a path, and slices of an op, at once. */
#define RDMA_OPS_MAX 1024u
#define RDMA_SLICES_MAX 65536u
/* Grants of an offer. */
#define RDMA_GRANTS_MAX 65536u
/* Revoked grants that an asker remembers: an op under one may still come. */
#define RDMA_REVOKED_MAX 1024u
/* Connections that have not said whose they are. */
#define RDMA_STRANGERS_MAX 64u
/* A connection must be made, and a pairing answered, within so long. */
#define RDMA_PATIENCE_US 3000000
/* Slices of a queue pair in error come back within so long, or it is destroyed
 * with them. */
#define RDMA_FLUSH_US 2000000
/* A rail that failed is left alone so long, and at most so long. */
#define RDMA_RETRY_FIRST_US 100000
#define RDMA_RETRY_LONGEST_US 5000000
/* An unanswered packet is sent again after 4.096 us x 2^this, so many times:
 * a silent loss is noticed within half a second. */
#define RDMA_ACK_TIMEOUT 14
#define RDMA_RETRIES 4
/* Reads that a queue pair may have at once. */
#define RDMA_READS_MAX 16u
/* Work requests that are posted in one go. */
#define RDMA_POST_MAX 16u

/* --- job.c: what a card's thread does --- */

enum job_kind {
    JOB_MAKE,    /* a queue pair, not connected */
    JOB_CONNECT, /* it, to what the peer has said */
    JOB_SERVE,   /* both, for a peer */
    JOB_DESTROY,
};

/* What a queue pair is connected to. */
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
    struct card *card; /* of it, what never changes */
    struct ibv_qp *qp; /* in and out */
    struct pairing to;
    int rc;
};

struct job_thread {
    struct crew *crew; /* of one; NULL: not started */
    int bell;          /* eventfd: something is over */
};

/* 0, or negative errno. */
[[nodiscard]] int job_thread_start(struct job_thread *t);
/* Does what waits, then ends. What is over is left for job_thread_over(). */
void job_thread_stop(struct job_thread *t);
void job_thread_add(struct job_thread *t, struct job *job);
/* A job that is over, or NULL. */
struct job *job_thread_over(struct job_thread *t);

/* --- gid.c --- */

struct card;

/* Sets c->gid to its best address, of n. 0 or -EADDRNOTAVAIL. */
[[nodiscard]] int card_find_gid(struct card *c, int n);
/* The index of c->gid, which changes when a link was down; or negative. */
int card_gid_index(const struct card *c);

/* --- card.c --- */

struct card {
    struct rdma *rdma;
    uint32_t index; /* the number of its rail */
    struct topology_nic nic;
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    unsigned n_events; /* of cq, not acknowledged */
    struct event *completion, *async, *over;
    struct ibv_mr *regions[TRANSPORT_REGIONS_MAX];
    union ibv_gid gid;
    uint16_t lid;
    enum ibv_mtu mtu;
    uint8_t reads;
    bool up;
    struct job_thread jobs;
};

/* Open the device c->nic.name, whose rdma, index and nic are set. 0, or
 * negative errno with err. */
[[nodiscard]] int card_open(struct card *c, char *err, size_t err_bytes);
/* NULL members are skipped. No end point is left. */
void card_close(struct card *c);
/* Takes the completions that are there, and the jobs that are over. */
void card_take(struct card *c);
void card_take_jobs(struct card *c);

/* --- end.c, end_io.c: queue pairs --- */

enum end_state {
    END_MAKING,     /* a job */
    END_ASKED,      /* PAIR was sent */
    END_CONNECTING, /* a job: of a served one, all there is to do */
    END_PROBING,    /* an empty read is under way */
    END_UP,
    END_DYING,      /* in error, its slices come back */
    END_DESTROYING, /* a job */
};

struct end {
    TAILQ_ENTRY(end) link; /* of its path's or its offer's */
    enum end_state state;
    struct card *card;
    struct rdma_path *path;   /* it asks; or NULL */
    struct rdma_offer *offer; /* it serves; or NULL */
    uint64_t id;              /* of the pairing */
    uint32_t slot;            /* in rdma.ends */
    uint32_t place;           /* in rdma.sieve; SIEVE_NONE */
    uint32_t peer_rail;
    uint32_t posted;
    int64_t from_us; /* of its state */
    bool doomed;     /* it dies when its job is over */
    bool asked;      /* the peer has a queue pair of it, or will */
    struct job job;
};

TAILQ_HEAD(end_list, end);

/* A place in rdma.ends: what a completion names. */
struct end_slot {
    struct end *end; /* NULL: free */
    uint32_t turn;   /* how often it was taken */
    uint32_t next;   /* of the free ones */
};

/* An end point of `p` on that card; its job is under way. NULL: all places are
 * taken by others that are busy, or no memory. */
struct end *end_ask(struct rdma_path *p, struct card *card, uint32_t peer_rail);
/* One for `o` that fits PAIR. 0; or negative errno, which is the answer. */
int end_serve(struct rdma_offer *o, const struct wire_message *m);
/* What PAIR and PAIRED say of it. */
struct wire_message end_message(const struct end *e, enum wire_type type);
/* PAIRED came for it. */
void end_paired(struct end *e, const struct wire_message *m);
/* It is not used any more; its slices come back, and then it goes. */
void end_fail(struct end *e, const char *why);
/* Post those slices, of which none is beyond the credits. */
void end_post(struct end *e, struct spread_slice **slices, uint32_t n);
/* A completion of that card. */
void end_completed(struct card *c, const struct ibv_wc *wc);
/* The job of the end point is over. */
void end_job_over(struct job *job);
/* Gives up what takes too long. */
void end_tick(struct end *e, int64_t now_us);

/* For end.c and end_io.c only. */
void end_set_state(struct end *e, enum end_state state);
void end_start(struct end *e, enum job_kind kind, enum end_state state);
void end_die(struct end *e);
void end_free(struct end *e);

/* --- channel.c: messages --- */

struct channel {
    struct bufferevent *bev;
    /* False: the channel is not to be touched any more. */
    bool (*message)(void *arg, const struct wire_message *m);
    /* It has failed: -EBADMSG (what came is malformed), or another errno. The
     * callee calls channel_fini(). */
    void (*gone)(void *arg, int rc, const char *why);
    void (*opened)(void *arg); /* NULL: it was accepted */
    void *arg;
};

/* Connect, or take an accepted socket. 0 or negative errno. */
[[nodiscard]] int channel_connect(struct channel *c, struct rdma *r,
                                  const char *host, uint16_t port);
[[nodiscard]] int channel_take(struct channel *c, struct rdma *r, int fd);
void channel_send(struct channel *c, const struct wire_message *m);
/* Take the connection of `from`. */
void channel_move(struct channel *c, struct channel *from);
/* Close it, without a callback. */
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
    struct event *timer;
    struct end *ends[SPREAD_RAILS_MAX]; /* of each rail, not yet dying */
    uint32_t attempts[SPREAD_RAILS_MAX];
    struct end_list all; /* end points, dying ones too */
    uint64_t n_pairings;
    uint64_t moved_bytes;
    uint64_t *grants; /* (n_grants): those that may be used */
    uint32_t n_grants, grants_room;
    uint64_t *leaving; /* (n_leaving): revoked, and an op is left */
    uint32_t n_leaving, leaving_room;
    uint64_t revoked[RDMA_REVOKED_MAX]; /* a ring */
    uint32_t n_revoked;
    int64_t opened_us;
    bool welcome;
    bool rail_up; /* one was */
    bool stands;  /* stands() was called */
    bool dirty;   /* in rdma.dirty_paths */
    TAILQ_ENTRY(rdma_path) dirty_link;
    int rc; /* negative: it has failed */
    char why[96];
    bool told;   /* closed() was called */
    bool closed; /* by its owner */
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

/* Does what can be done now: pairs, posts, and sees to the times. */
void path_pump(struct rdma_path *p);
void path_fail(struct rdma_path *p, int rc, const char *why);
/* Ops that have ended are told of, and the path's own end. */
void path_tell(struct rdma_path *p);
/* It is pumped, and told of, soon. */
void path_mark(struct rdma_path *p);
/* Of its channel. */
void path_opened(void *arg);
bool path_message(void *arg, const struct wire_message *m);
void path_channel_gone(void *arg, int rc, const char *why);
/* Answers REVOKEs whose ops have ended. */
void path_revoked(struct rdma_path *p);
/* Whether an op under that grant may be posted: 1; 0: it waits; or negative. */
int path_may(const struct rdma_path *p, uint64_t grant);
/* GRANT and REVOKE have come. 0, -EPROTO: it is not known; -ENOMEM,
 * -ENOBUFS. */
int path_granted(struct rdma_path *p, uint64_t id);
int path_revoke(struct rdma_path *p, uint64_t id);
/* For path_open.c. */
void path_on_timer(int, short, void *arg);
void path_free(struct rdma_path *p);
void path_fail_ends(struct rdma_path *p);
/* The port of its card has another state. */
void path_rail_changed(struct rdma_path *p, uint32_t rail, bool up);
/* Frees it if it was closed and nothing is left. */
void path_reap(struct rdma_path *p);

/* --- offer.c: serving --- */

struct grant {
    TAILQ_ENTRY(grant) link;
    uint64_t id;
    bool told;           /* the peer knows of it */
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
    struct channel channel; /* bev NULL: the peer is not connected */
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

/* The peer of the offer has connected. Takes the channel. */
void offer_take(struct rdma_offer *o, struct channel *c);
void offer_tell(struct rdma_offer *o);
void offer_mark(struct rdma_offer *o);
void offer_tick(struct rdma_offer *o, int64_t now_us);
/* A queue pair of it was made, or is gone. */
void offer_end_made(struct end *e);
void offer_end_gone(const struct end *e);
void offer_reap(struct rdma_offer *o);
void offer_rail_changed(struct rdma_offer *o, uint32_t rail, bool up);

/* --- accept.c --- */

/* An accepted connection that has not said whose it is. */
struct stranger_channel {
    TAILQ_ENTRY(stranger_channel) link;
    struct rdma *rdma;
    struct channel channel;
    int64_t since_us;
};

void rdma_accept(void *arg, int fd);
/* Closes those that came until then. */
void rdma_strangers_drop(struct rdma *r, int64_t since_us);

/* --- rdma.c, common.c --- */

/* All that a peer may do: whoever takes KV reads it, and a key is of a whole
 * region, so that a peer that may write could spoil any block. */
#define RDMA_PEERS_MAY IBV_ACCESS_REMOTE_READ

/* What is to be registered: host memory, or with `fd` of a dmabuf a card's. */
struct rdma_memory {
    void *at;
    uint64_t bytes;
    int fd; /* -1: none */
};

/* What lower files call of higher ones. */
struct rdma_up {
    void (*completed)(struct card *c, const struct ibv_wc *wc);
    void (*job_over)(struct job *job);
    void (*end_made)(struct end *e);
    void (*end_gone)(const struct end *e);
    void (*card_changed)(struct card *c, bool up);
    /* Does what is due of paths and offers that were marked. */
    void (*turn)(struct rdma *r);
};

struct rdma {
    struct transport base;
    const struct rdma_up *up;
    struct rdma_config config;
    struct spread_config spread;
    struct topology topology;
    struct listener *listener;
    struct event *turn; /* callbacks that are due */
    struct event *tick;
    struct card cards[SPREAD_RAILS_MAX];
    uint32_t n_cards;
    struct region {
        uint8_t *memory;
        uint64_t bytes;
        uint32_t classes[SPREAD_RAILS_MAX]; /* of each card */
    } regions[TRANSPORT_REGIONS_MAX];
    uint32_t n_regions;
    struct sieve *sieve;   /* of the end points that ask */
    struct end_slot *ends; /* (n_slots): asking, serving and dying ones */
    uint32_t n_slots;
    uint32_t free_slot; /* SIEVE_NONE: none */
    uint32_t n_serving;
    TAILQ_HEAD(, rdma_path) paths, dirty_paths;
    TAILQ_HEAD(, rdma_offer) offers, dirty_offers;
    TAILQ_HEAD(, stranger_channel) strangers;
    uint32_t n_strangers;
};

/* A line of the log. */
__attribute__((format(printf, 3, 4))) void
rdma_log(const struct rdma *r, int level, const char *format, ...);
/* Registers it with a card. NULL with errno: it cannot. */
struct ibv_mr *rdma_register(struct ibv_pd *pd, const struct rdma_memory *m);
/* The region that holds [memory, memory + bytes), or -1. */
int rdma_region_of(const struct rdma *r, const void *memory, uint64_t bytes);
/* What was marked is due soon. */
void rdma_turn_soon(struct rdma *r);

#endif
