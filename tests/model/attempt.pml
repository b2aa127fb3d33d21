/*
 * One request of each of two conductors, a prefill worker and a decode worker.
 * The request is tried at most twice. States and frames have their names of
 * conductor/service/request, workers/service and proto/frame.h.
 *
 * A connection keeps the order of its frames; frames of different connections
 * arrive in any order. A fault breaks a connection, kills a worker or a
 * conductor (both start again), or makes a client leave. A broken connection
 * loses any frames at its end, and each side sees that at a time of its own.
 *
 * Names in capitals after #ifdef are faults that run --broken puts in.
 */
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef CONDUCTORS
#define CONDUCTORS 2
#endif
#define TRIES 2
#define P 0 /* the prefill worker */
#define D 1 /* the decode worker */
#define LINK(i, w) (2 * (i) + (w))
#define ATTEMPT(i, n) (TRIES * (i) + (n)) /* n from 1 on */
#define OWNER(id) (((id) - 1) / TRIES)
#define RESET type = 0; id = 0 /* fewer states */

mtype = { PREFILL, DECODE, CANCEL, DECODE_READY, PREFILL_STARTED, PREFILL_DONE,
          TOKENS, DONE, FAILED, KV_BEGIN, KV_GRANT, KV_REFUSE, KV_END };
mtype:request = { RECEIVED, SCHEDULED, PREFILLING, TRANSFERRING, DECODING,
                  ENDED };
mtype:worker = { NONE, WAITING, PREFILLS, PUSHING, ANNOUNCED, KV_WAIT,
                 RECEIVING, DECODES };
mtype:client = { ASKS, ANSWERED, REFUSED, LEFT, LOST };

/* Frames between a conductor and a worker: type, attempt, index or number. */
chan to_worker[4] = [5] of { mtype, byte };
chan to_conductor[4] = [7] of { mtype, byte, byte };
chan to_decode = [4] of { mtype, byte };
chan to_prefill = [4] of { mtype, byte };

bool whole[4], conductor_up[4], worker_up[4]; /* by LINK() */
bool kv_whole, kv_prefill_up, kv_decode_up;   /* the KV's connection */

/* struct service_request and its attempt. */
mtype:request state[2];
byte attempt[2], tries[2], n_tokens[2], n_early[2];
bool unsent[2], early_done[2], prefill_open[2], decode_open[2], orphaned[2];

/* The requests of the workers, one of each conductor at most. */
mtype:worker prefills[2], decodes[2];
byte prefills_id[2], decodes_id[2];
bool granted[2], push_failed[2];
byte room; /* attempt that has pinned the decode worker's KV; 0 = none */

/* The clients: what they have seen. */
mtype:client client[2];
byte seen[2], seen_from[2];

byte faults = FAULTS;

inline say(link, type, id)
{
    if
    :: whole[link] -> assert(nfull(to_worker[link])); to_worker[link]!type(id)
    :: else
    fi
}

inline report(link, type, id, n)
{
    if
    :: whole[link] && worker_up[link] ->
        assert(nfull(to_conductor[link])); to_conductor[link]!type(id, n)
    :: else
    fi
}

inline cut(link) { whole[link] = false }

inline close_pool(i)
{
    prefill_open[i] = false;
    decode_open[i] = false
}

/* request_abort() */
inline abort(i)
{
    if
    :: conductor_up[LINK(i, P)] -> say(LINK(i, P), CANCEL, attempt[i])
    :: else
    fi;
#ifndef DECODE_IS_NOT_CANCELLED
    if
    :: conductor_up[LINK(i, D)] -> say(LINK(i, D), CANCEL, attempt[i])
    :: else
    fi;
#endif
#ifndef ABORT_KEEPS_POOL
    close_pool(i);
#endif
    attempt[i] = 0; unsent[i] = false; orphaned[i] = false;
    n_early[i] = 0; early_done[i] = false
}

inline end_client(i, how)
{
    assert(client[i] == ASKS); /* P: each request is answered once */
    client[i] = how
}

/* request_fail() behind request_abort() */
inline fail(i)
{
    state[i] = ENDED;
    end_client(i, REFUSED)
}

/* request_instance_lost(): tries again before the first token, or where the
 * front can take all of them back. */
inline instance_lost(i)
{
    abort(i);
    if
    :: n_tokens[i] > 0 ->
        if
        :: fail(i)
        :: tries[i] < TRIES -> /* take_back() */
#ifndef RETRY_KEEPS_TOKENS
            seen[i] = 0; seen_from[i] = 0;
#endif
            n_tokens[i] = 0; state[i] = RECEIVED
        fi
    :: else ->
        if
        :: tries[i] < TRIES -> state[i] = RECEIVED
        :: else -> fail(i)
        fi
    fi
}

/* request_token(): hands a token to the client. */
inline token(i, id)
{
    assert(client[i] == ASKS);
    /* P: all tokens are of one attempt, each comes once, in order */
    assert(seen[i] == n_tokens[i]);
    assert(seen_from[i] == 0 || seen_from[i] == id);
    seen_from[i] = id;
    seen[i]++;
    n_tokens[i]++
}

inline decoded(i, id)
{
    if
    :: state[i] == TRANSFERRING -> state[i] = DECODING
    :: else
    fi;
    token(i, id)
}

inline request_done(i)
{
    close_pool(i);
#ifndef ENDED_KEEPS_ATTEMPT
    attempt[i] = 0;
#endif
    orphaned[i] = false; early_done[i] = false;
    state[i] = ENDED;
    end_client(i, ANSWERED)
}

/* dispatch_place() books, serve_send() sends DECODE. */
inline place(i)
{
    assert(!prefill_open[i] && !decode_open[i]); /* P: booked once */
    tries[i]++;
    attempt[i] = ATTEMPT(i, tries[i]);
    prefill_open[i] = true; decode_open[i] = true; unsent[i] = true;
    state[i] = SCHEDULED;
    say(LINK(i, D), DECODE, attempt[i])
}

/* request_frame(); P: no frame is out of place (-EPROTO). */
inline on_frame(i, w, type, id, n)
{
    if
#ifndef FRAMES_GO_BY_SLOT
    :: id != attempt[i] /* of an attempt that was given up */
#else
    :: attempt[i] == 0
#endif
    :: else ->
        if
        :: type == DECODE_READY ->
            assert(w == D && state[i] == SCHEDULED);
            unsent[i] = false;
            say(LINK(i, P), PREFILL, attempt[i])
        :: type == PREFILL_STARTED ->
            assert(w == P && state[i] == SCHEDULED && !unsent[i]);
            state[i] = PREFILLING
        :: type == PREFILL_DONE ->
            assert(w == P && state[i] == PREFILLING);
            prefill_open[i] = false;
            state[i] = TRANSFERRING;
            token(i, id);
            if
            :: n_early[i] > 0 -> n_early[i] = 0; decoded(i, id)
            :: else
            fi;
            if
            :: early_done[i] -> request_done(i)
            :: else
            fi
        :: type == TOKENS ->
            assert(w == D && !unsent[i] && !early_done[i]);
            if
            :: n_tokens[i] > 0 -> assert(n == n_tokens[i]); decoded(i, id)
            :: else -> assert(n == 1 + n_early[i]); n_early[i]++
            fi
        :: type == DONE ->
            assert(w == D && !unsent[i]);
            if
            :: n_tokens[i] > 0 -> assert(n == n_tokens[i]); request_done(i)
            :: else -> assert(n == 1 + n_early[i]); early_done[i] = true
            fi
        :: type == FAILED -> instance_lost(i)
        fi
    fi
}

/* request_worker_left() */
inline worker_left(i, w)
{
    if
    :: attempt[i] == 0 || (w == P && state[i] == DECODING)
    :: attempt[i] != 0 && w == P && state[i] == TRANSFERRING ->
        orphaned[i] = true
    :: attempt[i] != 0 && (w == D ||
         (state[i] != DECODING && state[i] != TRANSFERRING)) ->
        instance_lost(i)
    fi
}

inline empty_worker(link)
{
    do
    :: nempty(to_worker[link]) -> to_worker[link]?_, _
    :: empty(to_worker[link]) -> break
    od
}

inline empty_conductor(link)
{
    do
    :: nempty(to_conductor[link]) -> to_conductor[link]?_, _, _
    :: empty(to_conductor[link]) -> break
    od
}

proctype conductor(byte i)
{
    mtype type;
    byte id, n;

end:
    do
    :: atomic { state[i] == RECEIVED && client[i] == ASKS &&
         conductor_up[LINK(i, P)] && conductor_up[LINK(i, D)] -> place(i) }
    :: atomic { state[i] == RECEIVED && client[i] == ASKS &&
         !(conductor_up[LINK(i, P)] && conductor_up[LINK(i, D)]) -> fail(i) }
    :: atomic { to_conductor[LINK(i, P)]?type, id, n ->
         on_frame(i, P, type, id, n); RESET; n = 0 }
    :: atomic { to_conductor[LINK(i, D)]?type, id, n ->
         on_frame(i, D, type, id, n); RESET; n = 0 }
    :: atomic { !whole[LINK(i, P)] && conductor_up[LINK(i, P)] ->
         empty_conductor(LINK(i, P)); conductor_up[LINK(i, P)] = false;
         worker_left(i, P) }
    :: atomic { !whole[LINK(i, D)] && conductor_up[LINK(i, D)] ->
         empty_conductor(LINK(i, D)); conductor_up[LINK(i, D)] = false;
         worker_left(i, D) }
#ifndef ORPHANS_WAIT
    :: atomic { orphaned[i] && state[i] == TRANSFERRING -> /* fail_orphans() */
         instance_lost(i) }
#endif
    od
}

inline drop_prefill(i)
{
    prefills[i] = NONE; prefills_id[i] = 0;
    granted[i] = false; push_failed[i] = false
}

inline drop_decode(i)
{
    if
    :: room == decodes_id[i] && room != 0 -> room = 0
    :: else
    fi;
    decodes[i] = NONE; decodes_id[i] = 0
}

inline fail_prefill(i)
{
    report(LINK(i, P), FAILED, prefills_id[i], 0);
    drop_prefill(i)
}

inline fail_decode(i)
{
    report(LINK(i, D), FAILED, decodes_id[i], 0);
    drop_decode(i)
}

/* push_end(): the push failed. */
inline push_end(i)
{
    if
    :: prefills[i] == PUSHING -> fail_prefill(i)
    :: prefills[i] == PREFILLS -> push_failed[i] = true
    :: else
    fi
}

inline prefill_frame(i)
{
    if
    :: type == PREFILL ->
        assert(prefills[i] == NONE); /* P: no id is in use */
        prefills[i] = WAITING; prefills_id[i] = id
    :: type == CANCEL && id == prefills_id[i] -> drop_prefill(i)
    :: type == CANCEL && id != prefills_id[i]
    fi
}

/* on_link_down() */
inline prefill_down(i)
{
    empty_worker(LINK(i, P));
    worker_up[LINK(i, P)] = false;
#ifndef LOST_CONDUCTOR_KEEPS_REQUESTS
    drop_prefill(i)
#endif
}

/* on_started(), transfer_push() */
inline prefill_begin(i)
{
    prefills[i] = PREFILLS;
    report(LINK(i, P), PREFILL_STARTED, prefills_id[i], 0);
    if
    :: kv_whole && kv_prefill_up ->
        assert(nfull(to_decode)); to_decode!KV_BEGIN(prefills_id[i])
    :: else -> push_failed[i] = true
    fi
}

/* on_prefilled() */
inline prefill_ends(i)
{
    report(LINK(i, P), PREFILL_DONE, prefills_id[i], 0);
    prefills[i] = PUSHING;
    if
    :: push_failed[i] -> fail_prefill(i)
    :: else
    fi
}

inline pushed(i)
{
    if
    :: kv_whole ->
        assert(nfull(to_decode)); to_decode!KV_END(prefills_id[i])
    :: else
    fi;
    drop_prefill(i)
}

proctype prefill_worker()
{
    mtype type;
    byte id;

end:
    do
    :: atomic { to_worker[LINK(0, P)]?type, id -> prefill_frame(0); RESET }
    :: atomic { to_worker[LINK(1, P)]?type, id -> prefill_frame(1); RESET }
    :: atomic { !whole[LINK(0, P)] && worker_up[LINK(0, P)] -> prefill_down(0) }
    :: atomic { !whole[LINK(1, P)] && worker_up[LINK(1, P)] -> prefill_down(1) }
    :: atomic { prefills[0] == WAITING -> prefill_begin(0) }
    :: atomic { prefills[1] == WAITING -> prefill_begin(1) }
    :: atomic { prefills[0] == PREFILLS -> prefill_ends(0) }
    :: atomic { prefills[1] == PREFILLS -> prefill_ends(1) }
    :: atomic { prefills[0] == PUSHING && granted[0] -> pushed(0) }
    :: atomic { prefills[1] == PUSHING && granted[1] -> pushed(1) }
    :: atomic { to_prefill?type, id ->
         if
         :: prefills_id[OWNER(id)] != id /* its push is over */
         :: prefills_id[OWNER(id)] == id && type == KV_GRANT ->
             granted[OWNER(id)] = true
         :: prefills_id[OWNER(id)] == id && type == KV_REFUSE ->
             push_end(OWNER(id))
         fi; RESET }
    :: atomic { !kv_whole && kv_prefill_up ->
         kv_prefill_up = false;
         do
         :: nempty(to_prefill) -> to_prefill?_, _
         :: empty(to_prefill) -> break
         od;
         push_end(0); push_end(1) }
    od
}

inline decode_frame(i)
{
    if
    :: type == DECODE ->
        assert(decodes[i] == NONE);
        decodes[i] = ANNOUNCED; decodes_id[i] = id;
        report(LINK(i, D), DECODE_READY, id, 0)
    :: type == CANCEL && id == decodes_id[i] -> drop_decode(i)
    :: type == CANCEL && id != decodes_id[i]
    fi
}

inline decode_down(i)
{
    empty_worker(LINK(i, D));
    worker_up[LINK(i, D)] = false;
#ifndef LOST_CONDUCTOR_KEEPS_REQUESTS
    drop_decode(i)
#endif
}

/* receive_on_begin(), receive_on_end() */
inline decode_kv(i)
{
    if
    :: type == KV_BEGIN && decodes_id[i] == id && decodes[i] == ANNOUNCED ->
        decodes[i] = KV_WAIT
    :: type == KV_BEGIN &&
         !(decodes_id[i] == id && decodes[i] == ANNOUNCED) ->
        if
        :: kv_whole -> assert(nfull(to_prefill)); to_prefill!KV_REFUSE(id)
        :: else
        fi
    :: type == KV_END && decodes_id[i] == id && decodes[i] == RECEIVING ->
        decodes[i] = DECODES;
        report(LINK(i, D), TOKENS, id, 1)
    :: type == KV_END && !(decodes_id[i] == id && decodes[i] == RECEIVING)
    fi
}

/* worker_grant() */
inline decode_grant(i)
{
    room = decodes_id[i];
    decodes[i] = RECEIVING;
    if
    :: kv_whole -> assert(nfull(to_prefill)); to_prefill!KV_GRANT(room)
    :: else
    fi
}

/* on_finished() */
inline decode_ends(i)
{
    report(LINK(i, D), DONE, decodes_id[i], 2);
    drop_decode(i)
}

inline sender_lost(i)
{
    if
    :: decodes[i] == KV_WAIT || decodes[i] == RECEIVING -> fail_decode(i)
    :: else
    fi
}

proctype decode_worker()
{
    mtype type;
    byte id;

end:
    do
    :: atomic { to_worker[LINK(0, D)]?type, id -> decode_frame(0); RESET }
    :: atomic { to_worker[LINK(1, D)]?type, id -> decode_frame(1); RESET }
    :: atomic { !whole[LINK(0, D)] && worker_up[LINK(0, D)] -> decode_down(0) }
    :: atomic { !whole[LINK(1, D)] && worker_up[LINK(1, D)] -> decode_down(1) }
    :: atomic { to_decode?type, id -> decode_kv(OWNER(id)); RESET }
    :: atomic { !kv_whole && kv_decode_up -> /* receive_shut() */
         kv_decode_up = false;
         do
         :: nempty(to_decode) -> to_decode?_, _
         :: empty(to_decode) -> break
         od;
#ifndef LOST_SENDER_IS_NOT_REPORTED
         sender_lost(0); sender_lost(1)
#endif
         }
    :: atomic { decodes[0] == KV_WAIT && room == 0 -> decode_grant(0) }
    :: atomic { decodes[1] == KV_WAIT && room == 0 -> decode_grant(1) }
    :: atomic { decodes[0] == DECODES -> decode_ends(0) }
    :: atomic { decodes[1] == DECODES -> decode_ends(1) }
    od
}

/* A connection is made anew when both sides have seen the end of the last. */
inline join_link(link)
{
    whole[link] = true; conductor_up[link] = true; worker_up[link] = true
}

inline kill_conductor(i)
{
    cut(LINK(i, P)); cut(LINK(i, D));
    empty_conductor(LINK(i, P)); empty_conductor(LINK(i, D));
    conductor_up[LINK(i, P)] = false; conductor_up[LINK(i, D)] = false;
    close_pool(i);
    state[i] = ENDED; attempt[i] = 0; unsent[i] = false; orphaned[i] = false;
    n_early[i] = 0; early_done[i] = false;
    if
    :: client[i] == ASKS -> client[i] = LOST
    :: else
    fi
}

inline kill_prefill()
{
    cut(LINK(0, P)); cut(LINK(1, P)); kv_whole = false;
    empty_worker(LINK(0, P)); empty_worker(LINK(1, P));
    worker_up[LINK(0, P)] = false; worker_up[LINK(1, P)] = false;
    kv_prefill_up = false;
    do
    :: nempty(to_prefill) -> to_prefill?_, _
    :: empty(to_prefill) -> break
    od;
    drop_prefill(0); drop_prefill(1)
}

inline kill_decode()
{
    cut(LINK(0, D)); cut(LINK(1, D)); kv_whole = false;
    empty_worker(LINK(0, D)); empty_worker(LINK(1, D));
    worker_up[LINK(0, D)] = false; worker_up[LINK(1, D)] = false;
    kv_decode_up = false;
    do
    :: nempty(to_decode) -> to_decode?_, _
    :: empty(to_decode) -> break
    od;
    drop_decode(0); drop_decode(1)
}

inline leave(i)
{
    abort(i); /* service_cancel() */
    state[i] = ENDED;
    client[i] = LEFT
}

proctype network()
{
    byte l;

end:
    do
    :: atomic { !whole[0] && !conductor_up[0] && !worker_up[0] -> join_link(0) }
    :: atomic { !whole[1] && !conductor_up[1] && !worker_up[1] -> join_link(1) }
    :: atomic { !whole[2] && !conductor_up[2] && !worker_up[2] -> join_link(2) }
    :: atomic { !whole[3] && !conductor_up[3] && !worker_up[3] -> join_link(3) }
    :: atomic { !kv_whole && !kv_prefill_up && !kv_decode_up ->
         kv_whole = true; kv_prefill_up = true; kv_decode_up = true }
    :: atomic { faults > 0 && (client[0] == ASKS || client[1] == ASKS) ->
         faults--;
         if
         :: whole[0] -> cut(0)
         :: whole[1] -> cut(1)
         :: whole[2] -> cut(2)
         :: whole[3] -> cut(3)
         :: kv_whole -> kv_whole = false
         :: kill_conductor(0)
         :: kill_conductor(1)
         :: kill_prefill()
         :: kill_decode()
         :: client[0] == ASKS -> leave(0)
         :: client[1] == ASKS -> leave(1)
         fi }
    od
}

/* P: once quiet, every request has ended, and no slot of a pool, request of a
 * worker or pin is left. */
proctype quiet()
{
    timeout ->
    assert(client[0] != ASKS && client[1] != ASKS);
    assert(!prefill_open[0] && !decode_open[0]);
    assert(!prefill_open[1] && !decode_open[1]);
    assert(prefills[0] == NONE && prefills[1] == NONE);
    assert(decodes[0] == NONE && decodes[1] == NONE && room == 0)
}

init {
    atomic {
        byte k;
        for (k : 0 .. 3) { join_link(k) }
        kv_whole = true; kv_prefill_up = true; kv_decode_up = true;
        for (k : 0 .. 1) {
            prefills[k] = NONE; decodes[k] = NONE;
            if
            :: k < CONDUCTORS -> state[k] = RECEIVED; client[k] = ASKS
            :: else -> state[k] = ENDED; client[k] = LOST
            fi
        }
        k = 0;
        run conductor(0); run conductor(1);
        run prefill_worker(); run decode_worker();
        run network(); run quiet()
    }
}
