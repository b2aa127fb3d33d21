/*
 * The lead: a key in Redis with a lease, its token, and what two workers make
 * of the tokens and orders of two conductors. Names are those of
 * conductor/cluster/registry.c and workers/service (lead.h, conductors.c).
 *
 * No time: a lease may end in Redis while its owner still believes in it (it
 * was paused), and an order may wait in its connection for any time. Faults: a
 * lease ends early; Redis is emptied, maybe with a clock that is behind the
 * tokens that it gave; a renewal's answer is lost; a conductor dies and starts
 * again, a worker too, or their connection breaks. Then all is quiet, leases
 * are renewed ROUNDS times, and each leader gives an order.
 */
#ifndef FAULTS
#define FAULTS 1
#endif
#ifdef TOKENS_ARE_GIVEN_ONCE
#define OLDER 0
#else
#define OLDER 30 /* tokens were given before */
#endif
#define RENEWALS 2 /* of each conductor, before quiet */
#define ORDERS 2   /* of each conductor, before quiet */
#define ROUNDS 4
#define OTHER(i) (1 - (i))
#define NOBODY 2
#define DEAD 3 /* a conductor that died; its lease has not ended */
#define LINK(i, w) (2 * (i) + (w))

mtype = { LEAD, ORDER }; /* ORDER: COPY, DROP or ROLE */

/* Redis */
byte lease[2], last_token = OLDER, leader = NOBODY, lead;
bool behind;  /* its clock is behind the tokens that it gave */
byte highest = OLDER; /* token ever: the clock when it is right */

/* struct cluster */
bool leads[2], renew_due[2], sent[2], answered[2], order_due[2];
byte token[2], lead_token[2], led_token[2];
byte ask_token[2], ask_led[2];                   /* a renewal on its way */
byte answer_token[2], answer_lead[2], answer_leader[2];
byte renewals[2], orders[2];

/* Connections: LEAD with its token, or an order. */
chan to_worker[4] = [4] of { mtype, byte };
bool up[4];
byte told[4];      /* struct conductor's lead, at the worker */
byte told_last[4]; /* struct worker's lead, at the conductor */

/* struct lead of each worker, and on which orders it acted. */
byte worker_lead[2], acted_token[2], acted_by[2] = NOBODY, followed[2];

byte faults = FAULTS, round;

/* instances_pack_lead() */
inline send_lead(i, w)
{
    if
    :: up[LINK(i, w)] && told_last[LINK(i, w)] != lead_token[i] ->
        assert(nfull(to_worker[LINK(i, w)]));
        to_worker[LINK(i, w)]!LEAD(lead_token[i]);
        told_last[LINK(i, w)] = lead_token[i]
    :: else
    fi
}

inline more(value, than)
{
    if
    :: value <= than -> value = than + 1
    :: else
    fi
}

/* fence() of registry_script: value is the next token. */
inline fence(value, i)
{
    value = last_token + 1;
#ifndef TOKENS_OF_REDIS_ALONE
    more(value, ask_token[i]);
    more(value, ask_led[i]);
#endif
    if
    :: !behind -> more(value, highest)
    :: else
    fi;
    last_token = value;
    if
    :: value > highest -> highest = value
    :: else
    fi;
    assert(highest < 100)
}

inline run_script(i)
{
    sent[i] = false;
    if
    :: lease[i] == 0 || lease[i] < ask_token[i] -> fence(lease[i], i)
    :: else
    fi;
    if
    :: leader == NOBODY -> leader = i; fence(lead, i)
    :: leader != NOBODY && lead < ask_led[i] -> fence(lead, i)
    :: else
    fi;
    answer_token[i] = lease[i]; answer_lead[i] = lead;
    answer_leader[i] = leader; answered[i] = true;
    ask_token[i] = 0; ask_led[i] = 0
}

inline set_leads(i, t)
{
    if
    :: t != 0 && (!leads[i] || t != lead_token[i]) ->
        leads[i] = true; lead_token[i] = t;
        send_lead(i, 0); send_lead(i, 1) /* on_leads() */
    :: t == 0 -> leads[i] = false
    :: else
    fi
}

inline on_renewed(i)
{
    answered[i] = false;
    token[i] = answer_token[i];
    if
    :: answer_lead[i] > led_token[i] -> led_token[i] = answer_lead[i]
    :: else
    fi;
    if
    :: answer_leader[i] == i -> set_leads(i, answer_lead[i])
    :: else -> set_leads(i, 0)
    fi;
    answer_token[i] = 0; answer_lead[i] = 0; answer_leader[i] = 0
}

inline give_order(i, w)
{
    if
    :: up[LINK(i, w)] ->
        assert(nfull(to_worker[LINK(i, w)])); to_worker[LINK(i, w)]!ORDER(0)
    :: else
    fi
}

proctype conductor(byte i)
{
end:
    do
    :: atomic { !sent[i] && !answered[i] && (renew_due[i] || renewals[i] > 0) ->
         if
         :: renew_due[i] -> renew_due[i] = false
         :: else -> renewals[i]--
         fi;
         ask_token[i] = token[i]; ask_led[i] = led_token[i]; sent[i] = true }
    :: atomic { sent[i] -> run_script(i) }
    :: atomic { answered[i] -> on_renewed(i) }
    :: atomic { leads[i] && orders[i] > 0 ->
         orders[i]--; give_order(i, 0); give_order(i, 1) }
    :: atomic { order_due[i] ->
         order_due[i] = false;
         if
         :: leads[i] -> give_order(i, 0); give_order(i, 1)
         :: else
         fi }
    od
}

/* P: at most one leader acts: no worker follows a conductor after one with a
 * higher token, nor two with the same token. The second is not so where Redis
 * was emptied with a clock that is behind: a conductor that has not heard the
 * last token may be given it again (docs/internals/measurements/model.md). */
#ifndef TOKENS_ARE_GIVEN_ONCE
#define TWICE behind
#else
#define TWICE false
#endif
inline act(i, w)
{
    assert(told[LINK(i, w)] >= acted_token[w]);
    assert(told[LINK(i, w)] > acted_token[w] || acted_by[w] == i ||
           acted_by[w] == NOBODY || TWICE);
    acted_token[w] = told[LINK(i, w)]; acted_by[w] = i; followed[w] = i
}

inline on_frame(i, w, type, t)
{
    if
    :: type == LEAD -> /* worker_take_lead() */
        told[LINK(i, w)] = t;
        if
        :: t > worker_lead[w] -> worker_lead[w] = t
        :: else
        fi
#ifndef ORDERS_ARE_NOT_FENCED
    :: type == ORDER && told[LINK(i, w)] >= worker_lead[w] -> act(i, w)
    :: type == ORDER && told[LINK(i, w)] < worker_lead[w] /* ignored */
#else
    :: type == ORDER -> act(i, w)
#endif
    fi
}

#define TOLD(w) (told[LINK(0, w)] > told[LINK(1, w)] -> told[LINK(0, w)] \
                                                     : told[LINK(1, w)])

proctype worker(byte w)
{
    mtype type;
    byte t;

end:
    do
    :: atomic { to_worker[LINK(0, w)]?type, t ->
         on_frame(0, w, type, t); type = 0; t = 0 }
    :: atomic { to_worker[LINK(1, w)]?type, t ->
         on_frame(1, w, type, t); type = 0; t = 0 }
#ifndef WORKERS_NEVER_FORGET
    /* lead_look(): no connected conductor has told the highest token for
     * LEAD_FORGET_US, in which all frames have come. */
    :: atomic { timeout && worker_lead[w] > TOLD(w) ->
         worker_lead[w] = TOLD(w);
         acted_token[w] = 0; acted_by[w] = NOBODY }
#endif
    od
}

inline empty_link(l)
{
    do
    :: nempty(to_worker[l]) -> to_worker[l]?_, _
    :: empty(to_worker[l]) -> break
    od;
    up[l] = false; told[l] = 0; told_last[l] = 0
}

inline join_link(i, w)
{
    up[LINK(i, w)] = true;
#ifndef JOINED_WORKERS_ARE_NOT_TOLD
    if
    :: leads[i] -> send_lead(i, w) /* peers_tick() */
    :: else
    fi
#endif
}

/* It starts again with another id, so that its lease ends by itself. */
inline kill_conductor(i)
{
    empty_link(LINK(i, 0)); empty_link(LINK(i, 1));
    leads[i] = false; sent[i] = false; answered[i] = false;
    token[i] = 0; lead_token[i] = 0; led_token[i] = 0;
    ask_token[i] = 0; ask_led[i] = 0;
    answer_token[i] = 0; answer_lead[i] = 0; answer_leader[i] = 0;
    lease[i] = 0;
    if
    :: leader == i -> leader = DEAD
    :: else
    fi;
    if
    :: acted_by[0] == i -> acted_by[0] = DEAD
    :: else
    fi;
    if
    :: acted_by[1] == i -> acted_by[1] = DEAD
    :: else
    fi
}

inline kill_worker(w)
{
    empty_link(LINK(0, w)); empty_link(LINK(1, w));
    worker_lead[w] = 0; acted_token[w] = 0; acted_by[w] = NOBODY
}

inline flush_redis()
{
    lease[0] = 0; lease[1] = 0; last_token = 0; leader = NOBODY; lead = 0;
    if
    :: behind = true
    :: true
    fi
}

proctype trouble()
{
end:
    do
    :: atomic { !up[0] -> join_link(0, 0) }
    :: atomic { !up[1] -> join_link(0, 1) }
    :: atomic { !up[2] -> join_link(1, 0) }
    :: atomic { !up[3] -> join_link(1, 1) }
#ifndef LEAD_HAS_NO_LEASE
    :: atomic { leader == DEAD -> leader = NOBODY; lead = 0 }
#endif
    :: atomic { faults > 0 && round == 0 ->
         faults--;
         if
         :: leader < NOBODY -> leader = NOBODY; lead = 0
         :: lease[0] != 0 -> lease[0] = 0
         :: lease[1] != 0 -> lease[1] = 0
         :: leads[0] -> leads[0] = false /* registry_tick() */
         :: leads[1] -> leads[1] = false
         :: answered[0] -> answered[0] = false
         :: answered[1] -> answered[1] = false
         :: up[0] -> empty_link(0)
         :: up[1] -> empty_link(1)
         :: up[2] -> empty_link(2)
         :: up[3] -> empty_link(3)
         :: kill_conductor(0)
         :: kill_conductor(1)
         :: kill_worker(0)
         :: kill_worker(1)
         :: flush_redis()
         fi }
    od
}

/* P: once quiet one conductor leads, Redis knows it, and every worker follows
 * its orders. */
inline check()
{
    assert(leads[0] != leads[1]);
    assert(leader < NOBODY && leads[leader]);
    assert(followed[0] == leader && followed[1] == leader)
}

proctype quiet()
{
    do
    :: atomic { timeout && round < ROUNDS ->
         round++; faults = 0; renewals[0] = 0; renewals[1] = 0;
         renew_due[0] = true; renew_due[1] = true }
    :: atomic { timeout && round == ROUNDS ->
         round++; followed[0] = NOBODY; followed[1] = NOBODY;
         order_due[0] = true; order_due[1] = true }
    :: atomic { timeout && round > ROUNDS -> check(); break }
    od
}

init {
    atomic {
        byte k;
        for (k : 0 .. 3) { up[k] = true }
        for (k : 0 .. 1) { renewals[k] = RENEWALS; orders[k] = ORDERS }
        k = 0;
        run conductor(0); run conductor(1); run worker(0); run worker(1);
        run trouble(); run quiet()
    }
}
